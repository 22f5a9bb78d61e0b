-- The messages that can be handed out: sorted sets, rk for those with keys and ru for the others.
-- Score is the negative priority; equal scores are sorted by the member's bytes, which are the sequence
-- in its sixteen digits. So a range from the front is the order of clause 6.

local function member_of(id, sequence)
  return sequence == '' and id or sequence .. id
end

-- Of messages: {id, priority, sequence, keyed}.
local function push_ready(q, messages)
  local with_keys, without = {}, {}
  for _, m in ipairs(messages) do
    local list = m.keyed and with_keys or without
    list[#list + 1] = 0 - m.priority -- not -0
    list[#list + 1] = member_of(m.id, m.sequence)
  end
  bulk('ZADD', q.rk, with_keys)
  bulk('ZADD', q.ru, without)
end

local function push_back(q, message)
  message.keyed = keyed(message)
  push_ready(q, { message })
end

local function front(key, count)
  return redis.call('ZRANGE', key, 0, count - 1, 'WITHSCORES')
end

-- The first ids of both sets, as they would come; and of each whether it is from the set with keys.
local function first_ready(q, kind, count)
  local a = kind ~= 'unkeyed' and front(q.rk, count) or {}
  local b = kind ~= 'keyed' and front(q.ru, count) or {}
  local ids, from_keyed = {}, {}
  local i, j = 1, 1
  while #ids < count and (a[i] or b[j]) do
    local from_a = a[i] ~= nil
    if from_a and b[j] then
      local left, right = tonumber(a[i + 1]), tonumber(b[j + 1])
      from_a = left < right or left == right and a[i] < b[j]
    end
    local member
    if from_a then
      member, i = a[i], i + 2
    else
      member, j = b[j], j + 2
    end
    ids[#ids + 1] = string.sub(member, -16)
    from_keyed[#from_keyed + 1] = from_a
  end
  return ids, from_keyed
end

-- What was taken is a beginning of each set, for first_ready() merges them in order.
local function drop_first(q, from_keyed, count)
  local with_keys = 0
  for i = 1, count do
    if from_keyed[i] then
      with_keys = with_keys + 1
    end
  end
  if with_keys > 0 then
    redis.call('ZREMRANGEBYRANK', q.rk, 0, with_keys - 1)
  end
  if count > with_keys then
    redis.call('ZREMRANGEBYRANK', q.ru, 0, count - with_keys - 1)
  end
end
