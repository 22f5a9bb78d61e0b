-- Who waits, and what wakes them. A function cannot block, so a caller that would wait is entered among
-- those who do, in w:KIND or w:room, with the end of its wait as the score: the dead leave by that. It
-- sleeps in BLPOP on wake:KIND or room. A call that leaves something for them pushes as many elements
-- as there is to have and as wait, less those that nobody took yet. The counters wake_until and room_until
-- say how long there may be anybody, so that nobody costs nothing.
--
-- Who waits for work sleeps no longer than until what it was told falls due; told:KIND has when that is.
-- Something may be entered that is due before: then one is woken, to ask again and be told.

-- What is there for whom was just looked at and is none: old elements say nothing.
local function wait_for(q, kind, consumer, wait)
  local c, ends = q.counters, q.now + wait
  redis_call('ZADD', q['w:' .. kind], digits(ends), consumer)
  if kind == 'room' then
    c[N.room_until] = math.max(c[N.room_until], ends)
  else
    redis_call('DEL', q['wake:' .. kind])
    redis_call('ZADD', q['told:' .. kind], digits(c[N.due]), consumer)
    c[N.wake_until] = math.max(c[N.wake_until], ends)
  end
end

-- A caller that asks again waits no more.
local function woken(q, consumer, kind)
  local c = q.counters
  if (kind == 'room' and c[N.room_until] or c[N.wake_until]) > q.now then
    redis_call('ZREM', q['w:' .. kind], consumer)
    if kind ~= 'room' then
      redis_call('ZREM', q['told:' .. kind], consumer)
    end
  end
end

-- Those whose wait is over leave; answers how many are left.
local function still_waiting(q, kind)
  local over = redis_call('ZRANGEBYSCORE', q['w:' .. kind], '-inf', digits(q.now), 'LIMIT', 0, MAX_DUE)
  bulk('ZREM', q['w:' .. kind], over)
  bulk('ZREM', q['told:' .. kind], over)
  return redis_call('ZCARD', q['w:' .. kind])
end

-- Whether nobody who waits would ask by the time that something falls due.
local function untold(q, kind)
  local due = q.counters[N.due]
  if due == NEVER then
    return false
  end
  local first = redis_call('ZRANGE', q['told:' .. kind], 0, 0, 'WITHSCORES')[2]
  return first and to_number(first) > due
end

local function wake(q, kind, list, most)
  local waiting = still_waiting(q, kind)
  if most == 0 and kind ~= 'room' and untold(q, kind) then
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
  local c = q.counters
  local ends = kind == 'room' and c[N.room_until] or c[N.wake_until]
  redis_call('PEXPIRE', list, math.ceil(math.min(ends - q.now, MAX_SPAN) / 1000))
end

local function wake_all(q)
  local c = q.counters
  if c[N.wake_until] > q.now then
    for kind in pairs(KINDS) do
      if kind ~= 'told' then
        local most = c[N.halted] == 0 and ready_count(c, kind) or 0
        if c[N.sealed] > 0 and c[N.unsettled] == 0 then
          most = NEVER
        end
        wake(q, kind, q['wake:' .. kind], most)
      end
    end
  end
  if c[N.room_until] > q.now then
    local size, bytes = option(q, 'MAXSIZE'), option(q, 'MAXBYTES')
    local free = size > 0 and size - c[N.unsettled] or NEVER
    if bytes > 0 and c[N.bytes] >= bytes then
      free = 0
    end
    wake(q, 'room', q.room, c[N.sealed] > 0 and NEVER or free)
  end
end
