-- il1_scan: cursor count [dead|newest]
-- All unsettled messages in no order, about so many at a time. Answers the next cursor, then messages.
-- Or the dead letters, in the order in which they died, or the newest first; the cursor is the last one that
-- was told.

local DEAD_ONES = { dead = 'Z', newest = 'ZREV', told = 'dead or newest' }

local function scan_dead(q, cursor, count, way)
  local rank = cursor ~= '0' and redis_call(way .. 'RANK', q.xo, cursor)
  if cursor ~= '0' and not rank then
    return { '0' }
  end
  local first = rank and rank + 1 or 0
  local reply, bytes = { '0' }, 0
  each_dead(q, first, first + count - 1, function(id, text)
    local _, told = tell_dead_one(q, id, text, reply)
    bytes, count = bytes + told, count - 1
    -- Whose page is full does not know whether there are more.
    local full = count == 0 or bytes >= MAX_TOLD
    reply[1] = full and id or '0'
    return full
  end, way)
  return reply
end

register('scan', function(q, from)
  local cursor = take_cursor(from)
  local count = take_whole(from, 1, MAX_BATCH, 'count')
  local dead = more(from) and take_word(from, DEAD_ONES, 'what')
  take_end(from)
  look(q)
  if dead then
    return scan_dead(q, cursor, count, DEAD_ONES[dead])
  end
  local reply = { '' }
  -- A message is not the only field that c has of it.
  reply[1] = each_field(q, cursor, 2 * count, function(field, text)
    return is_place(field) and tell(q, open_record(q, field, text), reply)
  end)
  return reply
end)
