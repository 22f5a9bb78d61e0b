-- il1_scan: cursor count
-- All unsettled messages in no order, about so many at a time. Answers the next cursor, then messages.

register('scan', { 'no-writes' }, function(q, from)
  local cursor = take_cursor(from)
  local count = take_whole(from, 1, MAX_BATCH, 'count')
  take_end(from)
  look(q)
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
