-- Waiters for room, and whose turn it is (clause 11). A put that waits for room is entered in
-- w:room, in the order of arrival; w:needs has for each the end of its wait, and the messages and
-- bytes it needs. It sleeps in BLPOP on room:CONSUMER, and a call that frees room pushes to those
-- for which it is enough. One with a coalescing name may need nothing after the lease of a message ended; one with a dedup
-- string, once that is known. A count with a zero in front marks them, and they are woken to ask again.
--
-- A put that finds room passes those for which there is too little, until room is kept for the
-- first of them. w:turn has the progress: how often the first was passed, how long room is kept the
-- next time, the time of the first passing and the end of the least period; since when room is
-- kept, if it is, until when, and the number of unsettled messages at that time; and whose turn it
-- is.

local MAX_PASSES = 64
local MAX_PASSED = 1000000
local MIN_KEPT = 10000
local MAX_KEPT = 10000000

-- A table of functions: a library is limited to 200 names.
local room = { KEPT = 'room is reserved for an earlier put that needs more' }

function room.step_aside(q, consumer)
  redis_call('ZREM', q['w:room'], consumer)
  redis_call('HDEL', q['w:needs'], consumer)
end

-- After the values comes the name of the consumer, where the numbers end.
function room.saved_turn(q, consumer)
  local text = redis_call('GET', q['w:turn'])
  if text then
    local t = { struct_unpack('ddddddd', text) }
    return string_sub(text, t[8]) == consumer and t
  end
end

-- Its wait is over, and its turn with it: the next time it waits, it has not been passed yet.
function room.leave(q, consumer)
  room.step_aside(q, consumer)
  if room.saved_turn(q, consumer) then
    redis_call('DEL', q['w:turn'])
  end
end

function room.need_of(q, text)
  if text then
    local ends, count, bytes = string_match(text, '^(%d+) (%d+) (%d+)$')
    if to_number(ends) > q.now then
      local eases = #count > 1 and string_byte(count) == 48
      return { count = to_number(count), bytes = to_number(bytes), eases = eases }
    end
  end
end

-- The first whose wait is not over, what it needs, and since when it waits.
function room.first(q)
  for _ = 1, MAX_DUE do
    local first, since = table_unpack(redis_call('ZRANGE', q['w:room'], 0, 0, 'WITHSCORES'))
    if not first then
      return nil
    end
    local need = room.need_of(q, redis_call('HGET', q['w:needs'], first))
    if need then
      return first, need, to_number(since)
    end
    room.leave(q, first)
  end
end

-- Its parts, in the stored order.
function room.new_turn(q, span, open)
  return { 0, span, q.now, open, 0, 0, 0 }
end

function room.turn_of(q, first)
  local saved = room.saved_turn(q, first)
  -- Times ahead of the clock are from before it was set back: its turn begins anew, and room is not kept for longer.
  if saved and (math.max(saved[3], saved[5]) > q.now or saved[6] > q.now + saved[2]) then
    saved = nil
  end
  return saved or room.new_turn(q, MIN_KEPT, 0), not saved
end

function room.expiry(q)
  return math.ceil(math.max(q.counters[N.room_until] - q.now, 0) / 1000) + 1
end

function room.save_turn(q, t, first)
  redis_call('SET', q['w:turn'], struct_pack('ddddddd', table_unpack(t, 1, 7)) .. first, 'PX', room.expiry(q))
end

-- Whether a put must leave room to the first in line, which may be this consumer.
function room.is_kept(q, consumer)
  local first, need, came = room.first(q)
  -- One that came later than now waits since before the clock was set back, and may be gone long since.
  if not first or first == consumer or came > q.now then
    return false
  end
  local c, now, t, new = q.counters, q.now, room.turn_of(q, first)
  local fits = not no_room(q, need.count, need.bytes)
  local works = c[N.leased] > 0 or c[N.halted] == 0 and ready_count(c, 'any') > 0
  local passed, span, since, open, from, till, unsettled = table_unpack(t, 1, 7)
  if till == 0 then
    local long = passed >= MAX_PASSES or passed > 0 and now >= since + MAX_PASSED
    local keeps = long and now >= open and (works or fits)
    if keeps then
      t[5], t[6], t[7] = now, now + span, c[N.unsettled]
    end
    if keeps or new then
      room.save_turn(q, t, first)
    end
    return keeps
  end
  if now < till and (works or fits) then
    return true
  end
  if works and not fits and c[N.unsettled] < unsettled then
    -- Keeping room is justified: there is too little, and it is growing.
    t[6], t[7] = now + span, c[N.unsettled]
    room.save_turn(q, t, first)
    return true
  end
  local more = now < till and span or math.min(2 * span, MAX_KEPT)
  room.save_turn(q, room.new_turn(q, more, now + math.min(now, till) - from), first)
  if fits then
    -- It was woken and did not come. It enters the line again when it asks.
    room.step_aside(q, first)
  end
  return false
end

-- A put succeeded, by a consumer or by a caller that cannot wait in line.
function room.took(q, consumer)
  local first = room.first(q)
  if first and first ~= consumer then
    local t = room.turn_of(q, first)
    t[1] = t[1] + 1
    room.save_turn(q, t, first)
  end
  if consumer then
    room.leave(q, consumer)
  end
end

-- It takes its place in line, or keeps it. There was just no room for it: an old element is
-- obsolete.
function room.wait(q, consumer, wait, count, bytes, eases)
  local c, ends = q.counters, q.now + wait
  local before = redis_call('HGET', q['w:needs'], consumer)
  if before and not room.need_of(q, before) then
    room.leave(q, consumer)
  end
  if not redis_call('ZSCORE', q['w:room'], consumer) then
    local last = redis_call('ZRANGE', q['w:room'], -1, -1, 'WITHSCORES')[2]
    redis_call('ZADD', q['w:room'], digits(math.max(q.now, last and to_number(last) + 1 or 0)), consumer)
  end
  redis_call('HSET', q['w:needs'], consumer,
    digits(ends) .. (eases and ' 0' or ' ') .. digits(count) .. ' ' .. digits(bytes))
  redis_call('DEL', name_of(q, 'room:' .. consumer))
  c[N.room_until] = math.max(c[N.room_until], ends)
  redis_call('PEXPIRE', q['w:room'], room.expiry(q))
  redis_call('PEXPIRE', q['w:needs'], room.expiry(q))
end

-- Those for which there is room, the first in line first, and those that may need less; or all, if they get a different
-- message.
-- A caller far behind asks again by itself.
function room.wake(q, all)
  local c, free, free_bytes = q.counters, NEVER, NEVER
  if not all then
    local size, most = option(q, 'MAXSIZE'), option(q, 'MAXBYTES')
    free = size > 0 and size - c[N.unsettled] or NEVER
    free_bytes = most > 0 and most - c[N.bytes] or NEVER
    -- A put that only replaces payloads needs no message to be free.
    if free < 0 or free == 0 and c[N.coalescing] == 0 or free_bytes < 0 then
      if not q.eased then
        return
      end
      free = -1
    end
  end
  local kept = not all and free >= 0 and room.is_kept(q)
  local line = redis_call('ZRANGE', q['w:room'], 0, kept and not q.eased and 0 or CHUNK - 1)
  if #line == 0 then
    c[N.room_until] = 0
    return
  end
  local needs = redis_call('HMGET', q['w:needs'], table_unpack(line))
  for i = 1, #line do
    local need = room.need_of(q, needs[i])
    if not need then
      room.leave(q, line[i])
    else
      local fits = all or (i == 1 or not kept) and need.count <= free and need.bytes <= free_bytes
      if fits then
        free, free_bytes = free - need.count, free_bytes - need.bytes
      end
      local list = name_of(q, 'room:' .. line[i])
      if (fits or need.eases and q.eased) and redis_call('LLEN', list) == 0 then
        redis_call('RPUSH', list, '1')
        redis_call('PEXPIRE', list, room.expiry(q))
      end
    end
  end
end
