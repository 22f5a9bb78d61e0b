-- Results (il1_result): how a message ended whose put asked for it. res has of each id a letter, until
-- when it is kept, and the result; rz when they go, ro in which order they came, for the bound.

-- These messages are settled: reported to their waiters when the call ends.
local function note_ended(q, ids)
  if q.counters[N.settled_until] > q.now then
    q.ended = q.ended or {}
    for i = 1, #ids do
      q.ended[#q.ended + 1] = ids[i]
    end
  end
end

local ENDS = { d = 'acked', c = 'cancelled', s = 'skipped', e = 'expired' }

local function drop_results(q, ids)
  for i, text in ipairs(fetch(q.res, ids)) do
    if text then
      q.counters[N.results] = q.counters[N.results] - 1
      q.counters[N.result_bytes] = q.counters[N.result_bytes] - (#text - 17)
    else
      ids[i] = ''
    end
  end
  bulk('HDEL', q.res, ids)
  bulk('ZREM', q.rz, ids)
  bulk('ZREM', q.ro, ids)
end

-- Results whose time is over, some per call.
local function expire_results(q)
  local c = q.counters
  if c[N.results] == 0 or q.now < c[N.result_due] then
    return
  end
  local over = redis_call('ZRANGEBYSCORE', q.rz, '-inf', digits(q.now), 'LIMIT', 0, MAX_DUE)
  drop_results(q, over)
  local first = redis_call('ZRANGE', q.rz, 0, 0, 'WITHSCORES')[2]
  c[N.result_due] = first and to_number(first) or NEVER
end

local function keep_result(q, m, letter, result)
  local span = m.extras and m.extras.RESULT
  local most = span and option(q, 'RESULTS')
  if not span or #result > most then
    return
  end
  local c, kept_until = q.counters, q.now + span
  redis_call('HSET', q.res, m.id, letter .. digits(kept_until) .. result)
  redis_call('ZADD', q.rz, digits(kept_until), m.id)
  c[N.moved] = c[N.moved] + 1
  redis_call('ZADD', q.ro, c[N.moved], m.id)
  c[N.results], c[N.result_bytes] = c[N.results] + 1, c[N.result_bytes] + #result
  c[N.result_due] = math.min(c[N.result_due], kept_until)
  while c[N.result_bytes] > most do
    drop_results(q, redis_call('ZRANGE', q.ro, 0, 0))
  end
end

-- The interface to other files: one table, because a library is limited to 200 names.
local results = {
  note_ended = note_ended, ENDS = ENDS, drop = drop_results, expire = expire_results, keep = keep_result,
}
