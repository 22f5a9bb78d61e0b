-- il1_scan: cursor count [dead]
-- All unsettled messages in no order, about so many at a time. Answers the next cursor, then messages.
-- Or the dead letters, in the order in which they died; the cursor is the last one that was told.

local DEAD_ONES = { dead = true, told = 'dead' }

local function scan_dead(q, cursor, count)
  local rank = cursor ~= '0' and redis_call('ZRANK', q.xo, cursor)
  if cursor ~= '0' and not rank then
    return { '0' }
  end
  local first = rank and rank + 1 or 0
  local ids = redis_call('ZRANGE', q.xo, first, first + count - 1)
  local reply = { #ids == count and ids[count] or '0' }
  for i, text in ipairs(fetch(q.x, ids)) do
    tell_dead_one(q, ids[i], text, reply)
  end
  return reply
end

register('scan', { 'no-writes' }, function(q, from)
  local cursor = take_cursor(from)
  local count = take_whole(from, 1, MAX_BATCH, 'count')
  local dead = more(from) and take_word(from, DEAD_ONES, 'what')
  take_end(from)
  look(q)
  if dead then
    return scan_dead(q, cursor, count)
  end
  -- A message is not the only field that c has of it.
  local found = redis_call('HSCAN', q.c, cursor, 'COUNT', 2 * count)
  local reply = { found[1] }
  for i = 1, #found[2], 2 do
    if is_place(found[2][i]) then
      tell(q, open_record(q, found[2][i], found[2][i + 1]), reply)
    end
  end
  return reply
end)
