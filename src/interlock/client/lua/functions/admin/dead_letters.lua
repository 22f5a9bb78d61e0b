-- il1_dead_letters: count after [key]
-- The first `count` dead letters behind `after` (empty: from the first), with a key only those that carry
-- it, in the order in which they died: for each id, attempts, time, error, priority, payload, exclusive,
-- shared, then the keys.

-- Answers how many bytes that took.
local function tell_dead(q, id, dead, reply)
  local payload = dead.outside and redis_call('HGET', q.y, id) or dead.payload
  description.append(reply, {
    id, tostring(dead[2]), dead[3], dead[1], digits(dead.extras.PRIORITY or 0), payload,
    tostring(#dead.exclusive), tostring(#dead.shared),
  })
  description.append(reply, dead.exclusive)
  description.append(reply, dead.shared)
  return description.bytes_told(payload, dead.exclusive, dead.shared, dead[1])
end

register('dead_letters', function(q, from)
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  local first = 0
  if from.args[from.at + 1] == '' then
    from.at = from.at + 1
  else
    local after = take.number(from, 'after')
    local rank = redis_call('ZRANK', q.xo, after)
    first = rank and rank + 1
  end
  local key = more(from) and take.text(from, MAX_KEY_BYTES, 'key')
  if key == '' then
    bad(from, 'key', 0, 'is empty')
  end
  take_end(from)
  local reply, bytes, looked_at = {}, 0, 0
  -- After an id that is not a dead letter, nothing follows.
  local last = first and first + (key and MAX_LOOKED_AT or count) - 1 or -1
  description.each_dead(q, first or 0, last, function(id, text)
    local dead = cmsgpack.unpack(text)
    if not key or description.carries(dead, key) then
      bytes, count = bytes + tell_dead(q, id, dead, reply), count - 1
    end
    looked_at = looked_at + (key and 1 + #dead.exclusive + #dead.shared or 0)
    return count == 0 or looked_at >= MAX_LOOKED_AT or bytes >= MAX_TOLD
  end)
  return reply
end)
