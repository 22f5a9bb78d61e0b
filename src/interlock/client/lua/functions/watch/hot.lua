-- il1_hot: cursor
-- All lanes in no order. Answers the next cursor, then pairs of key and depth.

register('hot', function(q, from)
  local cursor = take_cursor(from)
  take_end(from)
  look(q)
  local reply = { '' }
  reply[1] = each_field(q, cursor, 2 * MAX_BATCH, function(field, text)
    local key = key_of_lane(field)
    if key then
      reply[#reply + 1] = key
      reply[#reply + 1] = digits(lane_of(q, text).depth)
    end
  end)
  return reply
end)
