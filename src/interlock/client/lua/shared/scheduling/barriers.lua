-- Barriers (clause 14): alone, after all before them and before all after them. ba has the places
-- of the pending ones; a message put behind one takes its place in its lanes as usual, but has one
-- more gate to wait for. g:PLACE lists these messages, bn counts those behind a barrier that are
-- unsettled, and the counter open those before the first. While no barrier is pending, nothing of
-- this is kept.
--
-- The gates of a settled barrier open little by little: opening lists the barriers whose do. An element of
-- g:PLACE may be '>' and a barrier that was cancelled in the middle: its gates follow.

local unblock = lanes.unblock

local function first_barrier(q)
  if not q.first then
    q.first = redis_call('ZRANGE', q.ba, 0, 0)[1]
  end
  return q.first
end

-- A message takes its place. Answers whether it is behind a barrier.
local function gate(q, m)
  local last = redis_call('ZRANGE', q.ba, -1, -1)[1]
  redis_call('HINCRBY', q.bn, last, 1)
  redis_call('RPUSH', name_of(q, 'g:' .. last), m.place)
  return true
end

-- A barrier takes its place; `before` other messages are unsettled and have one. Answers whether it
-- is ready.
local function place_barrier(q, m, before)
  local c = q.counters
  if c[N.barriers] == 0 then
    c[N.open] = before
    q.first = m.place
  end
  c[N.barriers] = c[N.barriers] + 1
  redis_call('ZADD', q.ba, m.place, m.place)
  return c[N.barriers] == 1 and c[N.open] == 0
end

local function ready_barrier(q)
  if q.counters[N.barriers] > 0 and q.counters[N.open] == 0 then
    unblock(q, message_at(q, first_barrier(q)))
  end
end

local function barrier_before(q, place)
  return redis_call('ZREVRANGEBYSCORE', q.ba, '(' .. place, '-inf', 'LIMIT', 0, 1)[1]
end

-- A message that is not a barrier was settled.
local function left_behind(q, m)
  local c = q.counters
  if m.place < first_barrier(q) then
    c[N.open] = c[N.open] - 1
    ready_barrier(q)
  else
    redis_call('HINCRBY', q.bn, barrier_before(q, m.place), -1)
  end
end

local function open_gates(q)
  local c = q.counters
  while q.steps > 0 and c[N.opening] > 0 do
    local list = name_of(q, 'g:' .. redis_call('LINDEX', q.opening, 0))
    local places = redis_call('LRANGE', list, 0, q.steps - 1)
    local used, nested = 0, nil
    for _, place in ipairs(places) do
      used = used + 1
      if string_byte(place) == 62 then -- '>'
        nested = string_sub(place, 2)
        break
      end
      q.steps = q.steps - 1
      local m = message_at(q, place)
      -- It may have been cancelled.
      if m and not m.gone and m.state == 'G' then
        m.state = 'W'
        unblock(q, m)
      end
    end
    if used > 0 then
      redis_call('LPOP', list, used)
    end
    if nested then
      redis_call('LPUSH', q.opening, nested)
      c[N.opening] = c[N.opening] + 1
    elseif redis_call('EXISTS', list) == 0 then
      redis_call('LPOP', q.opening)
      c[N.opening] = c[N.opening] - 1
    end
  end
end

-- A barrier was settled.
local function barrier_settled(q, m)
  local c, behind = q.counters, to_number(redis_call('HGET', q.bn, m.place) or 0)
  local leads = m.place == first_barrier(q)
  local previous = not leads and barrier_before(q, m.place)
  redis_call('ZREM', q.ba, m.place)
  redis_call('HDEL', q.bn, m.place)
  q.first = false
  c[N.barriers] = c[N.barriers] - 1
  local gates = redis_call('EXISTS', name_of(q, 'g:' .. m.place)) == 1
  if previous then
    -- Cancelled in the middle: the messages on both sides join.
    if behind > 0 then
      redis_call('HINCRBY', q.bn, previous, behind)
    end
    if gates then
      redis_call('RPUSH', name_of(q, 'g:' .. previous), '>' .. m.place)
    end
    return
  end
  c[N.open] = c[N.barriers] > 0 and c[N.open] + behind or 0
  if gates then
    redis_call('RPUSH', q.opening, m.place)
    c[N.opening] = c[N.opening] + 1
  end
  open_gates(q)
  ready_barrier(q)
end

-- The interface to other files: one table, because a library is limited to 200 names.
local barriers = {
  first = first_barrier, gate = gate, place = place_barrier, left_behind = left_behind, open_gates = open_gates,
  settled = barrier_settled,
}
