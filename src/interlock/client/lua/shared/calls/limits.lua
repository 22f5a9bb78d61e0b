-- Made by `make generate` from wire/: change that.

-- The limits of one call. A function blocks the whole server while it
-- runs, so each of these bounds how long that can be.

-- Keys of one message
local MAX_KEYS = 1024

-- Bytes of a key; the minimum is one
local MAX_KEY_BYTES = 1024

-- Bytes of a payload, and of a result
local MAX_PAYLOAD = 1048576

-- Messages of one put or one lease, settlements of one call
local MAX_BATCH = 1024

-- Keys of one put or one lease, all its messages together
local MAX_BATCH_KEYS = 4096

-- Bytes of a message's run: a number and a label
local MAX_RUN = 261

-- Pairs of name and value of one message
local MAX_OPTIONS = 24

-- Bytes of a dedup string, of a consumer's name, of the error in an event
local MAX_TEXT = 1024

-- Bytes of the concurrency limits of a queue
local MAX_LIMITS = 16384

-- Names of concurrency limits of one message
local MAX_LIMIT_NAMES = 8

-- Messages of a group's turn
local MAX_WEIGHT = 1000

-- Bytes of an error or reason
local MAX_ERROR = 4096

-- Bytes of the errors of all attempts that are stored for a message
local MAX_HISTORY = 16384

-- Bytes of a queue's name, of a worker's
local MAX_NAME = 512

-- µs, maximum of a duration: 31 years, so that now plus a duration stays below 2⁵³
local MAX_SPAN = 1e15

-- µs since 1970, maximum for messages restored from another queue: the year 2096
local MAX_TIME = 4e15

-- Maximum number of attempts, messages, dead letters
local MAX_COUNT = 1000000000

-- Maximum of an id, a token, a call number: Lua cannot represent larger integers
local MAX_NUMBER = 9007199254740991

-- Messages that one purge settles or drops; fewer with more than MAX_BATCH_KEYS keys
local MAX_PURGED = 1000

-- Bytes of payloads and keys after which a call returns no further message or dead letter, and
-- of payloads after which a lease includes no further message
local MAX_TOLD = 1048576

-- Events that a queue keeps while somebody watches
local MAX_EVENTS = 4096

-- Keys of each kind in an event
local MAX_EVENT_KEYS = 16

-- Bytes of these keys, of each kind
local MAX_EVENT_KEY_BYTES = 1024

-- Bytes of consumers, errors and keys after which a call returns no further event
local MAX_EVENT_BYTES = 262144

-- µs for which one call registers a watcher
local MAX_WATCH = 60000000

-- Workers announced at a queue
local MAX_WORKERS = 10000

-- Bytes of a worker's announcement
local MAX_ANNOUNCED = 65536

-- Bytes of a request to a worker
local MAX_ASKED = 4096

-- Requests that wait for one worker; beyond it the oldest is dropped
local MAX_REQUESTS = 16

-- Dead letters and their keys examined by one call that asks for a key
local MAX_LOOKED_AT = 10000

-- Keys and holders that an explanation names beyond the message asked for
local MAX_NAMED = 10000

-- Bytes of these keys
local MAX_NAMED_BYTES = 1048576

-- Messages, leases and paused keys that one call examines to find what blocks others
local MAX_ROOTS = 1000

-- Messages that one call counts behind others
local MAX_WALKED = 2000

-- Due times that one call examines to find what blocks others
local MAX_TIMES = 50000

-- Places in lanes that one call examines to count them
local MAX_PLACES = 10000

-- Messages of each kind behind which the oldest waiting message is searched
local MAX_FRONT = 100

-- µs for which a consumer's last reply is kept
local KEPT_REPLY = 300000000

-- Due events that one call applies; the next calls apply the rest
local MAX_DUE = 1000

-- Successors that one call readies (clause 21)
local MAX_READIED = 1000

-- Fields read at a time; each may have two megabytes
local READ_AT_ONCE = 8

-- A time that never comes
local NEVER = 9e15

-- Bytes; a longer payload is stored apart from its record
local APART = 1024

-- Version of the stored layout: see counters.lua, and tests/engine/stored when it changes
local LAYOUT = 7
