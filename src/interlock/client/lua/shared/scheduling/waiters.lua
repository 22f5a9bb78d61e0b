-- Waiting callers, and their wake-ups. A function cannot block, so a caller that wants to wait is
-- entered in w:KIND, with the end of its wait as the score, by which entries of dead callers
-- expire. It sleeps in BLPOP on wake:KIND. A call that leaves work for waiters pushes as many
-- elements as there is work and waiters, less the elements that were not taken yet. A counter for
-- each line says how long it may have a waiter, so that an empty line costs nothing.
--
-- A waiter for work sleeps no longer than until the next thing falls due, as far as it knows;
-- told:KIND has that time. If something earlier is entered, one waiter is woken, to ask again and
-- learn the new time.
--
-- A caller that waits until a message is settled, or all are, is entered in w:settled under the id,
-- or as all, and settled_until says how long there may be such a waiter. It sleeps in BLMOVE of
-- settled:ID, or settled:all, onto itself, so one element wakes all that wait for the same.

local UNTIL = {
  any = N.wake_until, keyed = N.keyed_until, unkeyed = N.unkeyed_until,
}

-- A check just found no work for this kind: old elements are obsolete.
local function wait_for(q, kind, consumer, wait)
  local c, ends, line = q.counters, q.now + wait, UNTIL[kind]
  redis_call('ZADD', q['w:' .. kind], digits(ends), consumer)
  c[line] = math.max(c[line], ends)
  redis_call('DEL', q['wake:' .. kind])
  redis_call('ZADD', q['told:' .. kind], digits(c[N.due]), consumer)
end

-- A caller that asks again is no longer waiting.
local function woken(q, consumer, kind)
  if q.counters[UNTIL[kind]] > q.now then
    redis_call('ZREM', q['w:' .. kind], consumer)
    redis_call('ZREM', q['told:' .. kind], consumer)
  end
end

-- Removes callers whose wait is over; answers how many are left.
local function still_waiting(q, kind)
  local count = redis_call('ZCARD', q['w:' .. kind])
  if count == 0 then
    q.counters[UNTIL[kind]] = 0
    return 0
  end
  local over = redis_call('ZRANGEBYSCORE', q['w:' .. kind], '-inf', digits(q.now), 'LIMIT', 0, MAX_DUE)
  bulk('ZREM', q['w:' .. kind], over)
  bulk('ZREM', q['told:' .. kind], over)
  return count - #over
end

-- Whether no waiter would ask again by the time that something falls due.
local function untold(q, kind)
  local due = q.counters[N.due]
  if due == NEVER then
    return false
  end
  local first = redis_call('ZRANGE', q['told:' .. kind], 0, 0, 'WITHSCORES')[2]
  return first and to_number(first) > due
end

local function wake(q, kind, list, most)
  local c = q.counters
  local is_left = c[N.swept] > 0
  if most == 0 and c[N.due] == NEVER and not is_left then
    return
  end
  local waiting = still_waiting(q, kind)
  if waiting == 0 then
    return
  end
  if most == 0 and (is_left or untold(q, kind)) then
    -- It continues where this call had to stop, or learns when something falls due.
    most = 1
  end
  local count = math.min(waiting, most) - redis_call('LLEN', list)
  if count <= 0 then
    return
  end
  for first = 1, count, CHUNK do
    local elements = {}
    for i = 1, math.min(CHUNK, count - first + 1) do
      elements[i] = '1'
    end
    redis_call('RPUSH', list, table_unpack(elements))
  end
  redis_call('PEXPIRE', list, math.ceil(math.min(c[UNTIL[kind]] - q.now, MAX_SPAN) / 1000))
end

local function wake_for_work(q, kind)
  local c = q.counters
  local most = c[N.halted] == 0 and ready_count(c, kind) or 0
  if c[N.sealed] > 0 and c[N.unsettled] == 0 then
    most = NEVER
  end
  wake(q, kind, q['wake:' .. kind], most)
end

local function wait_for_end(q, what, wait)
  local c, ends, entered = q.counters, q.now + wait, q['w:settled']
  redis_call('ZREMRANGEBYSCORE', entered, '-inf', digits(q.now))
  redis_call('ZADD', entered, 'GT', digits(ends), what)
  redis_call('DEL', name_of(q, 'settled:' .. what))
  c[N.settled_until] = math.max(c[N.settled_until], ends)
  redis_call('PEXPIRE', entered, math.ceil((c[N.settled_until] - q.now) / 1000))
end

-- Reports settled messages to their waiters.
local function wake_ended(q)
  local ended = q.ended or {}
  q.ended = false
  if q.counters[N.unsettled] == 0 then
    ended[#ended + 1] = 'all'
  end
  for first = 1, #ended, CHUNK do
    local some = { table_unpack(ended, first, math.min(first + CHUNK - 1, #ended)) }
    local waits = redis_call('ZMSCORE', q['w:settled'], table_unpack(some))
    for i = 1, #some do
      local left = waits[i] and tonumber(waits[i]) - q.now or 0
      if left > 0 then
        local list = name_of(q, 'settled:' .. some[i])
        redis_call('RPUSH', list, '1')
        redis_call('PEXPIRE', list, math.ceil(left / 1000))
        redis_call('ZREM', q['w:settled'], some[i])
      end
    end
  end
end

local function wake_all(q)
  local c = q.counters
  if c[N.settled_until] > q.now then
    wake_ended(q)
  end
  if c[N.wake_until] > q.now then
    wake_for_work(q, 'any')
  end
  if c[N.keyed_until] > q.now then
    wake_for_work(q, 'keyed')
  end
  if c[N.unkeyed_until] > q.now then
    wake_for_work(q, 'unkeyed')
  end
  if c[N.room_until] > q.now then
    room.wake(q, c[N.sealed] > 0)
  end
end

-- All waiters, to report that the queue is being removed.
local function wake_to_leave(q)
  local c = q.counters
  for _, kind in ipairs({ 'any', 'keyed', 'unkeyed' }) do
    if c[UNTIL[kind]] > q.now then
      wake(q, kind, q['wake:' .. kind], NEVER)
    end
  end
  if c[N.room_until] > q.now then
    room.wake(q, true)
  end
  if c[N.settled_until] > q.now then
    q.ended = redis_call('ZRANGE', q['w:settled'], 0, -1)
    wake_ended(q)
  end
end

-- The interface to other files: one table, because a library is limited to 200 names.
local waiters = {
  wait_for = wait_for, woken = woken, wait_for_end = wait_for_end, wake_all = wake_all,
  wake_to_leave = wake_to_leave,
}
