-- il1_paused: cursor
-- Everything that is paused, in no order: keys, and an empty key for the whole queue. Answers the
-- next cursor first.

register('paused', function(q, from)
  local cursor = description.take_cursor(from)
  take_end(from)
  local c = look(q)
  local found = redis_call('HSCAN', q.pk, cursor, 'COUNT', MAX_BATCH)
  local reply = { found[1] }
  if cursor == '0' and c[N.halted] > 0 then
    reply[2] = ''
  end
  for i = 1, #found[2], 2 do
    reply[#reply + 1] = found[2][i]
  end
  return reply
end)
