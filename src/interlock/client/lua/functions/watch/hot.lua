-- il1_hot: cursor
-- At cursor 0 the deepest lanes, up to HOT, in no order; behind it all lanes, in no order. Answers the next cursor, then
-- pairs of key and depth.

local HOT = 1024
-- The first page has lanes of one or two messages, which are not in dep, if fewer than these are deeper.
local FEW = 64

-- The depths of lanes, in the order of the keys.
local function depths_of(q, keys)
  local fields, depths = {}, {}
  for i = 1, #keys do
    fields[i] = two(#keys[i]) .. keys[i]
  end
  for i, text in ipairs(fetch(q.c, fields)) do
    depths[i] = text and lanes.of(q, text).depth or 0
  end
  return depths
end

-- The keys in dep if they are few, else those of the deepest classes, together HOT or more; fewer if too many are in
-- the last class.
local function deepest_lanes(q, count)
  local keys = redis_call('ZREVRANGE', q.dep, 0, HOT - 1)
  if count > HOT then
    local class = redis_call('ZSCORE', q.dep, keys[HOT])
    local all, alike = redis_call('ZCOUNT', q.dep, class, '+inf'), redis_call('ZCOUNT', q.dep, class, class)
    if alike <= MAX_LOOKED_AT then
      keys = redis_call('ZREVRANGE', q.dep, 0, all - 1)
    elseif to_number(class) > 3 then
      keys = all > alike and redis_call('ZREVRANGE', q.dep, 0, all - alike - 1) or {}
    end
    -- Else each has three messages, and any will do.
  end
  local depths = depths_of(q, keys)
  if #keys <= HOT then
    return keys, depths
  end
  local order = {}
  for i = 1, #keys do
    order[i] = i
  end
  table.sort(order, function(one, other)
    if depths[one] ~= depths[other] then
      return depths[one] > depths[other]
    end
    return keys[one] < keys[other]
  end)
  local first, found = {}, {}
  for i = 1, HOT do
    first[i], found[i] = keys[order[i]], depths[order[i]]
  end
  return first, found
end

local function tell_hot(reply, key, depth)
  reply[#reply + 1] = key
  reply[#reply + 1] = digits(depth)
end

-- All lanes, from a cursor of c. Answers the next one.
local function scan_lanes(q, cursor, reply)
  return (description.each_field(q, cursor, 2 * MAX_BATCH, function(field, text)
    local key = lanes.key_of(field)
    if key then
      tell_hot(reply, key, lanes.of(q, text).depth)
    end
  end))
end

-- Adds the `count` lanes that have this number of messages, 1 or 2, and are in this hash: of more than HOT any of
-- them, otherwise all or none. Answers whether it added all.
local function tell_alike(q, count, depth, name, reply)
  if count == 0 then
    return true
  end
  local told, found = {}, {}
  for i = 2, #reply, 2 do
    told[reply[i]] = true
  end
  description.each_field(q, '0', 2 * MAX_BATCH, function(field, text)
    -- A field of n is a place and a key: of a lane of two messages there is one.
    local key = depth == 2 and string_sub(field, 17) or lanes.key_of(field)
    if key and not told[key] and (depth == 2 or lanes.is_single(text)) then
      told[key] = true
      tell_hot(found, key, depth)
    end
  end, name)
  local all = #found == 2 * count
  if all or count > HOT then
    description.append(reply, found)
  end
  return all
end

register('hot', function(q, from)
  local cursor = description.take_cursor(from)
  take_end(from)
  local c, reply = look(q), { '1' }
  if cursor ~= '0' then
    local after = scan_lanes(q, digits(to_number(cursor) - 1), reply)
    reply[1] = after == '0' and after or digits(to_number(after) + 1)
    return reply
  end
  local count = redis_call('ZCARD', q.dep)
  local keys, depths = deepest_lanes(q, count)
  local behind = 0
  for i = 1, #keys do
    tell_hot(reply, keys[i], depths[i])
    behind = behind + depths[i] - 1
  end
  if count <= HOT then
    if behind + c[N.crowded] - count ~= redis_call('HLEN', q.n) then
      -- The queue was stored by a release without dep.
      return { '1' }
    elseif count == c[N.lanes] or count < FEW
      and tell_alike(q, c[N.crowded] - count, 2, q.n, reply)
      and tell_alike(q, c[N.lanes] - c[N.crowded], 1, q.c, reply) then
      reply[1] = '0'
    end
  end
  return reply
end)
