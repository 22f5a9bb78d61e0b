-- Lanes (clauses 1 to 5). A lane is a chain of nodes: an exclusive message, by its id, or a group of
-- shared holders, by 'g' and the id of the first. The hash tail knows a lane's last node, s the node
-- behind a node. A field of s, g or gw is a node and a key; a node's length is known, so the two
-- cannot be mistaken for another pair.
--
-- g counts the unsettled members of a group. While the group waits, gw has the last member that does;
-- s leads from a member to the one that joined before. (A member of a group has no other use for its
-- fields of s.) b counts the nodes a message waits for; at none it is ready. So a put and a settlement
-- cost O(keys of the message), whatever is pending (clause 21).

local GROUP = 103 -- 'g'; while a library is loaded there is no string.byte()

-- What readying a message needs, kept with the count, so that its record need not be read.
local function blocked_value(count, m)
  if m.priority == 0 and m.sequence == '' then
    return count
  end
  return count .. ' ' .. m.priority .. ' ' .. m.sequence
end

local function join_group(q, tails, links, m, key)
  local before = tails[key]
  if before and string.byte(before) == GROUP then
    local field = before .. key
    redis.call('HINCRBY', q.g, field, 1)
    local last = redis.call('HGET', q.gw, field)
    if last then
      links[#links + 1] = m.id .. key
      links[#links + 1] = last
      redis.call('HSET', q.gw, field, m.id)
    end
    return before, last
  end
  local group = 'g' .. m.id
  redis.call('HSET', q.g, group .. key, 1)
  if before then
    links[#links + 1] = before .. key
    links[#links + 1] = group
    redis.call('HSET', q.gw, group .. key, m.id)
  end
  tails[key] = group
  return group, before
end

local function name_keys(list, keys, tails)
  for i = 1, #list do
    local key = list[i]
    if tails[key] == nil then
      tails[key] = false
      keys[#keys + 1] = key
    end
  end
end

-- Places messages at the end of their lanes, in this order. Sets their groups; answers the ready.
local function link(q, messages)
  local keys, tails = {}, {}
  for _, m in ipairs(messages) do
    name_keys(m.exclusive, keys, tails)
    name_keys(m.shared, keys, tails)
  end
  local found = fetch(q.tail, keys)
  for i, key in ipairs(keys) do
    tails[key] = found[i]
  end
  local links, blocked, ready = {}, {}, {}
  for _, m in ipairs(messages) do
    local waits = 0
    for _, key in ipairs(m.exclusive) do
      local before = tails[key]
      if before then
        links[#links + 1] = before .. key
        links[#links + 1] = m.id
        waits = waits + 1
      end
      tails[key] = m.id
    end
    for i, key in ipairs(m.shared) do
      local group, held_up = join_group(q, tails, links, m, key)
      m.groups[i] = group
      if held_up then
        waits = waits + 1
      end
    end
    if waits > 0 then
      blocked[#blocked + 1] = m.id
      blocked[#blocked + 1] = blocked_value(waits, m)
    else
      m.keyed = keyed(m)
      ready[#ready + 1] = m
    end
  end
  local changed = {}
  for _, key in ipairs(keys) do
    changed[#changed + 1] = key
    changed[#changed + 1] = tails[key]
  end
  bulk('HSET', q.tail, changed)
  bulk('HSET', q.s, links)
  bulk('HSET', q.b, blocked)
  return ready
end

-- Frees the waiting members of a group, from the last. What is over the bound of one call goes on
-- with the next: it is entered among what is due, at time 0.
local function open_members(q, member, key, freed)
  while member do
    if q.opened >= MAX_OPENED then
      redis.call('ZADD', q.due, 0, 'o' .. member .. key)
      return
    end
    q.opened = q.opened + 1
    freed[#freed + 1] = member
    local field = member .. key
    member = redis.call('HGET', q.s, field)
    if member then
      redis.call('HDEL', q.s, field)
    end
  end
end

-- Each of `freed` waits for one node fewer, once for each time it is named.
local function unblock(q, freed)
  local ids, times = {}, {}
  for _, id in ipairs(freed) do
    if not times[id] then
      ids[#ids + 1] = id
    end
    times[id] = (times[id] or 0) + 1
  end
  local found = fetch(q.b, ids)
  local fewer, none, ready = {}, {}, {}
  for i, id in ipairs(ids) do
    local count, priority, sequence = tonumber(found[i]), 0, ''
    if not count then
      count, priority, sequence = string.match(found[i], '^(%d+) (%S+) (.*)$')
    end
    local left = count - times[id]
    if left == 0 then
      none[#none + 1] = id
      ready[#ready + 1] = { id = id, priority = priority, sequence = sequence, keyed = true }
    else
      fewer[#fewer + 1] = id
      fewer[#fewer + 1] = blocked_value(left, { priority = tonumber(priority), sequence = sequence })
    end
  end
  bulk('HSET', q.b, fewer)
  bulk('HDEL', q.b, none)
  push_ready(q, ready)
end

-- Takes settled messages, which are in front, out of their lanes; what stood behind them moves up.
local function unlink(q, messages)
  local fields, keys = {}, {}
  for _, m in ipairs(messages) do
    for _, key in ipairs(m.exclusive) do
      fields[#fields + 1] = m.id .. key
      keys[#keys + 1] = key
    end
    for i, key in ipairs(m.shared) do
      local field = m.groups[i] .. key
      if redis.call('HINCRBY', q.g, field, -1) == 0 then
        redis.call('HDEL', q.g, field)
        fields[#fields + 1] = field
        keys[#keys + 1] = key
      end
    end
  end
  local after = fetch(q.s, fields)
  local passed, empty, freed = {}, {}, {}
  for i, key in ipairs(keys) do
    local node = after[i]
    if not node then
      empty[#empty + 1] = key
    else
      passed[#passed + 1] = fields[i]
      if string.byte(node) == GROUP then
        local last = redis.call('HGET', q.gw, node .. key)
        redis.call('HDEL', q.gw, node .. key)
        open_members(q, last, key, freed)
      else
        freed[#freed + 1] = node
      end
    end
  end
  bulk('HDEL', q.s, passed)
  bulk('HDEL', q.tail, empty)
  unblock(q, freed)
end
