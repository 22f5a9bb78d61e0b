-- il1_hot: cursor
-- All lanes in no order. Answers the next cursor, then pairs of key and depth.

register('hot', { 'no-writes' }, function(q, from)
  local cursor = take_cursor(from)
  take_end(from)
  look(q)
  local found = redis.call('HSCAN', q.l, cursor, 'COUNT', MAX_BATCH)
  local reply = { found[1] }
  for i = 1, #found[2], 2 do
    if found[2][i] ~= '' then
      reply[#reply + 1] = found[2][i]
      reply[#reply + 1] = digits(lane_of(q, found[2][i + 1]).depth)
    end
  end
  return reply
end)
