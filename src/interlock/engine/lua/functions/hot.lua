-- il1_hot: cursor
-- All lanes in no order. Answers the next cursor, then pairs of key and depth.

register('hot', { 'no-writes' }, function(q, from)
  local cursor = take_cursor(from)
  take_end(from)
  look(q)
  local found = redis_call('HSCAN', q.c, cursor, 'COUNT', 2 * MAX_BATCH)
  local reply = { found[1] }
  for i = 1, #found[2], 2 do
    local key = key_of_lane(found[2][i])
    if key then
      reply[#reply + 1] = key
      reply[#reply + 1] = digits(lane_of(q, found[2][i + 1]).depth)
    end
  end
  return reply
end)
