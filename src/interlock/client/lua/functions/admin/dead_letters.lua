-- il1_dead_letters: count after [key]
-- The first `count` dead letters behind `after` (empty: from the first), with a key only those that carry
-- it, in the order in which they died: for each id, attempts, time, error, priority, payload, exclusive,
-- shared, then the keys. If an earlier release wrote some of the letters, the last one may be without the key.

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

-- The dead letters with a key behind an id, if there is one, from xk.
local function each_on(q, key, after, count, look)
  local first = after and '(' .. letters.behind(key, redis_call('ZSCORE', q.xo, after), after) or '[' .. letters.behind(key)
  local members = redis_call('ZRANGEBYLEX', q.xk, first, '(' .. letters.behind(key) .. ':', 'LIMIT', 0, count)
  for start = 1, #members, READ_AT_ONCE do
    local ids = {}
    for i = start, math.min(start + READ_AT_ONCE - 1, #members) do
      ids[#ids + 1] = string_sub(members[i], -16)
    end
    for i, text in ipairs(fetch(q.x, ids)) do
      if look(ids[i], text) then
        return
      end
    end
  end
end

register('dead_letters', function(q, from)
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  local after = nil
  if from.args[from.at + 1] == '' then
    from.at = from.at + 1
  else
    after = take.number(from, 'after')
  end
  local key = more(from) and take.text(from, MAX_KEY_BYTES, 'key')
  if key == '' then
    bad(from, 'key', 0, 'is empty')
  end
  take_end(from)
  look(q)
  local rank = after and redis_call('ZRANK', q.xo, after)
  if after and not rank then
    -- After an id that is not a dead letter, nothing follows.
    return {}
  end
  local listed = key and letters.are_listed(q)
  local reply, bytes, left = {}, 0, key and not listed and MAX_LOOKED_AT or math.huge
  local function tell_one(id, text)
    local dead = cmsgpack.unpack(text)
    left = left - 1 - #dead.exclusive - #dead.shared
    -- The next page begins behind the last letter of this one: so that is the last one examined.
    if not key or left <= 0 or description.carries(dead, key) then
      bytes, count = bytes + tell_dead(q, id, dead, reply), count - 1
    end
    return count == 0 or left <= 0 or bytes >= MAX_TOLD
  end
  if listed then
    each_on(q, key, after, count, tell_one)
  else
    local first = rank and rank + 1 or 0
    description.each_dead(q, first, first + (key and MAX_LOOKED_AT or count) - 1, tell_one)
  end
  return reply
end)
