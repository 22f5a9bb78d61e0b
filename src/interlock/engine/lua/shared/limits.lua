-- Made by `make generate` from wire/: change that.

-- What one call may ask for. A function holds up the whole server while it
-- runs, so each of these bounds how long that can be.

-- Keys of one message
local MAX_KEYS = 1024

-- Bytes of a key, which has one at least
local MAX_KEY_BYTES = 1024

-- Bytes of a payload, and of a result
local MAX_PAYLOAD = 1048576

-- Messages of one put or one lease, settlements of one call
local MAX_BATCH = 1024

-- Keys of one put or one lease, all its messages together
local MAX_BATCH_KEYS = 4096

-- Pairs of name and value of one message
local MAX_OPTIONS = 16

-- Bytes of a dedup string, of a consumer's name, of the error that an event tells
local MAX_TEXT = 1024

-- Bytes of an error or reason
local MAX_ERROR = 4096

-- Bytes of the errors of all attempts that are kept of a message
local MAX_HISTORY = 16384

-- Bytes of a queue's name, of a worker's
local MAX_NAME = 512

-- µs, of a duration: 31 years, so that now and a span together stay below 2⁵³
local MAX_SPAN = 1e15

-- µs since 1970, of what is carried from elsewhere: the year 2096
local MAX_TIME = 4e15

-- Of attempts, messages, dead letters
local MAX_COUNT = 1000000000

-- Of an id, a token, a call: beyond it Lua knows no numbers
local MAX_NUMBER = 9007199254740991

-- Messages that one purge settles or drops; fewer with more than MAX_BATCH_KEYS keys
local MAX_PURGED = 1000

-- Bytes of payloads and keys behind which a call tells no further message or dead letter, and
-- of payloads behind which a lease hands out no further message
local MAX_TOLD = 1048576

-- Events that a queue keeps while somebody watches
local MAX_EVENTS = 4096

-- Keys of each sort that an event tells
local MAX_EVENT_KEYS = 16

-- Bytes of these keys, of each sort
local MAX_EVENT_KEY_BYTES = 1024

-- Bytes of consumers, errors and keys behind which a call tells no further event
local MAX_EVENT_BYTES = 262144

-- µs for which one call says that somebody watches
local MAX_WATCH = 60000000

-- Workers that are announced at a queue
local MAX_WORKERS = 10000

-- Bytes of what a worker says of itself
local MAX_ANNOUNCED = 65536

-- Bytes of a request to a worker
local MAX_ASKED = 4096

-- Requests that wait for one worker; beyond it the oldest is dropped
local MAX_REQUESTS = 16

-- Dead letters and keys of them looked at by one call that asks for a key
local MAX_LOOKED_AT = 10000

-- Keys and holders that an explanation names beyond the message asked for
local MAX_NAMED = 10000

-- Bytes of these keys
local MAX_NAMED_BYTES = 1048576

-- Messages, leases and paused keys that one call looks at for what holds others up
local MAX_ROOTS = 1000

-- Messages that one call counts behind others
local MAX_WALKED = 2000

-- Times at which something falls due that one call looks through for what holds others up
local MAX_TIMES = 50000

-- Places in lanes that one call looks at to count them
local MAX_PLACES = 10000

-- Messages of each kind behind which the oldest waiting message is looked for
local MAX_FRONT = 100

-- µs for which a consumer's last reply is kept
local KEPT_REPLY = 300000000

-- Of what is due, one call applies so much; the next calls the rest
local MAX_DUE = 1000

-- Successors that one call readies (clause 21)
local MAX_READIED = 1000

-- Fields read at a time, of which each may have two megabytes
local READ_AT_ONCE = 8

-- A time that does not come
local NEVER = 9e15

-- Bytes: a longer payload lies apart from its record
local APART = 1024

-- Of what is stored: see counters.lua, and tests/engine/stored when it changes
local LAYOUT = 2
