-- The counters of a queue: one string of doubles, read once and written once by a call. The first ones
-- are the series of ids (seq) and of tokens (fence), a time before which nothing is due, and how many
-- died ever; fk to su say how long the lists and sorted sets of the ready are, and how many entries of
-- the lists stand for messages that were cancelled.

local COUNTERS = {
  'seq', 'fence', 'due', 'died', 'unsettled', 'bytes', 'delayed', 'leased', 'backing_off', 'held',
  'dead', 'fk', 'fu', 'rk', 'ru', 'sk', 'su', 'puts', 'leases', 'acks', 'retries', 'releases',
  'expired', 'revoked', 'buried', 'cancelled', 'skipped', 'requeued', 'deduplicated', 'paused',
  'halted', 'sealed', 'declared', 'barriers', 'open', 'opening', 'late', 'unfinished', 'returning',
  'moved', 'windows', 'results', 'result_bytes', 'result_due', 'wake_until', 'room_until',
  'aliases',
}
local COUNTERS_LAYOUT -- made by the first call: while a library is loaded there is no `string`

local function load_counters(q)
  COUNTERS_LAYOUT = COUNTERS_LAYOUT or string.rep('d', #COUNTERS)
  local c = {}
  local text = redis.call('GET', q.c)
  if text then
    -- The last value is where the text ends.
    local values = { struct.unpack(COUNTERS_LAYOUT, text) }
    for i = 1, #COUNTERS do
      c[COUNTERS[i]] = values[i]
    end
  else
    for i = 1, #COUNTERS do
      c[COUNTERS[i]] = 0
    end
    c.due, c.result_due = NEVER, NEVER
  end
  q.counters, q.before = c, text
  return c
end

local function save_counters(q)
  local c, values = q.counters, {}
  for i = 1, #COUNTERS do
    values[i] = c[COUNTERS[i]]
  end
  local text = struct.pack(COUNTERS_LAYOUT, unpack(values))
  if text ~= q.before then
    redis.call('SET', q.c, text)
  end
end

-- The next number of a series: the larger of the last one plus 1 and the time, so that none comes again
-- even when a failover lost the last ones (clause 8).
local function draw(q, series)
  local number = math.max(q.counters[series] + 1, q.now)
  q.counters[series] = number
  return digits(number)
end
