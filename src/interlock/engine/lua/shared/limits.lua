-- What one call may ask for. A function holds up the whole server while it runs, so each of these
-- bounds how long that can be.
local MAX_KEYS = 1024         -- keys of one message
local MAX_KEY_BYTES = 1024
local MAX_PAYLOAD = 1048576   -- bytes
local MAX_BATCH = 1024        -- messages of one put or one lease, settlements of one call
local MAX_BATCH_KEYS = 4096   -- keys of one put or one lease, all its messages together
local MAX_TEXT = 1024         -- bytes of a dedup string, of an error, of a consumer's name
local MAX_DUE = 1000          -- of what is due, one call applies so much; the next calls the rest
local MAX_OPENED = 1000       -- of a group of readers, one call readies so many (clause 21)
local MAX_SPAN = 1e15         -- µs: 31 years, so that now and a span together stay below 2^53
local MAX_NUMBER = 9007199254740991

local DEFAULT_ATTEMPTS = 5
local DEFAULT_FIRST = 1000000    -- µs, the first backoff
local DEFAULT_FACTOR = 2000      -- thousandths
local DEFAULT_LONGEST = 60000000 -- µs
local DEFAULT_WINDOW = 300000000 -- µs: what is settled is known for five minutes (clause 13)
local KEPT_REPLY_MS = 300000     -- a consumer that is silent for so long has given up its repeat
