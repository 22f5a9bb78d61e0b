-- What one call may ask for. A function holds up the whole server while it runs, so each of these
-- bounds how long that can be.
local MAX_KEYS = 1024         -- keys of one message
local MAX_KEY_BYTES = 1024
local MAX_PAYLOAD = 1048576   -- bytes of a payload, of a result
local MAX_BATCH = 1024        -- messages of one put or one lease, settlements of one call
local MAX_BATCH_KEYS = 4096   -- keys of one put or one lease, all its messages together
local MAX_TEXT = 1024         -- bytes of a dedup string, of an error, of a consumer's name
local MAX_NAME = 512          -- bytes of a queue's name
local MAX_DUE = 1000          -- of what is due, one call applies so much; the next calls the rest
local MAX_READIED = 1000      -- successors that one call readies (clause 21)
local MAX_PURGED = 1000       -- messages that one purge settles or drops; fewer with more than MAX_BATCH_KEYS keys
local MAX_LOOKED_AT = 10000   -- dead letters and their keys looked at by one call that asks for a key
local MAX_TOLD = 1048576      -- bytes of payloads and keys behind which a call tells no further message
local READ_AT_ONCE = 8        -- fields read at a time, of which each may have two megabytes
local MAX_SPAN = 1e15         -- µs: 31 years, so that now and a span together stay below 2^53
local MAX_TIME = 4e15         -- µs since 1970, of what is carried from elsewhere: the year 2096
local MAX_NUMBER = 9007199254740991
local MAX_COUNT = 1000000000  -- of attempts, messages, dead letters
local NEVER = 9e15            -- a time that does not come

local KEPT_REPLY = 300000000 -- µs; a consumer that is silent for so long has given up its repeat
local APART = 1024            -- bytes: a longer payload lies apart from its record
local LAYOUT = 2              -- of what is stored: see counters.lua, and tests/engine/stored when it changes
