-- The counters of a queue: one string of doubles, read once and written once by a call. The first ones
-- are the series of ids (seq) and of tokens (fence), a time before which nothing is due, and how many
-- died ever; fk to su say how long the lists and sorted sets of the ready are, and how many entries of
-- the lists stand for messages that were cancelled.

local COUNTERS = {
  'seq', 'fence', 'due', 'died', 'unsettled', 'bytes', 'delayed', 'leased',
  'backing_off', 'held', 'dead', 'fk', 'fu', 'rk', 'ru', 'sk',
  'su', 'puts', 'leases', 'acks', 'retries', 'releases', 'expired', 'revoked',
  'buried', 'cancelled', 'skipped', 'requeued', 'deduplicated', 'paused', 'halted', 'sealed',
  'declared', 'barriers', 'open', 'opening', 'late', 'unfinished', 'returning', 'moved',
  'windows', 'results', 'result_bytes', 'result_due', 'wake_until', 'room_until', 'aliases', 'wide',
  'settled_until', 'keyed_until', 'unkeyed_until',
}

-- The number of each: c[N.seq]. Names in the table itself would cost five times what loading it does.
local N = {}
for i = 1, #COUNTERS do
  N[COUNTERS[i]] = i
end
-- Made by the first call: while a library is loaded there is no `string`.
local COUNTERS_LAYOUT = nil

local function load_counters(q)
  COUNTERS_LAYOUT = COUNTERS_LAYOUT or string.rep('d', #COUNTERS)
  -- A call that looked for its kept reply has read them already: '' where there are none.
  local text, c = q.ahead or redis.call('GET', q.c), nil
  if text and text ~= '' then
    if #text < 8 * #COUNTERS then
      -- Written by a library that knew fewer.
      text = text .. string.rep('\0', 8 * #COUNTERS - #text)
    end
    c = { struct.unpack(COUNTERS_LAYOUT, text) }
    -- Behind the values comes where the text ends.
    c[#COUNTERS + 1] = nil
  else
    c = {}
    for i = 1, #COUNTERS do
      c[i] = 0
    end
    c[N.due], c[N.result_due] = NEVER, NEVER
  end
  q.counters, q.loaded, q.ahead = c, text, false
  return c
end

local function save_counters(q)
  local text = struct.pack(COUNTERS_LAYOUT, unpack(q.counters))
  if text ~= q.loaded then
    redis.call('SET', q.c, text)
  end
end

-- The next number of a series: the larger of the last one plus 1 and the time, so that none comes again
-- even when a failover lost the last ones (clause 8).
local function draw(q, series)
  local c = q.counters
  local number = c[series] + 1
  if number < q.now then
    number = q.now
  end
  c[series] = number
  return digits(number)
end
