-- il1_scan: cursor count
-- All unsettled messages in no order, about so many at a time. Answers the next cursor, then messages.

register('scan', { 'no-writes' }, function(q, from)
  local cursor = take_cursor(from)
  local count = take_whole(from, 1, MAX_BATCH, 'count')
  take_end(from)
  look(q)
  local found = redis.call('HSCAN', q.p, cursor, 'COUNT', count)
  local reply = { found[1] }
  for i = 1, #found[2], 2 do
    local m = open_record(q, found[2][i], found[2][i + 1])
    tell(q, m, reply)
  end
  return reply
end)
