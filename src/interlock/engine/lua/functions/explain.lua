-- il1_explain: id ID limit, or key KEY limit
-- Why a message waits, or what stands in front on a key (clause 17): breadth first, each message once, cut
-- at the limit. Nothing for what is not there.

local EXPLAINED = { id = true, key = true, told = 'id or key' }
local STEPS = 2000         -- nodes looked at in all, to count how many stand before others
local LOOKED_THROUGH = 1000 -- unsettled messages looked through for those before a barrier
local SHOWN_BEFORE = 10    -- of these are named, beyond those that are leased

local function add(walk, m)
  if walk.seen[m.id] then
    return
  elseif #walk.list == walk.limit then
    walk.truncated = true
  else
    walk.seen[m.id] = true
    walk.list[#walk.list + 1] = m
  end
end

-- How many stand before a place on a key, counted from whichever end is nearer; and whether to the end.
local function ahead_of(q, walk, place, key, depth)
  local back, on, walked = place, place, 0
  while walk.steps > 0 do
    walk.steps = walk.steps - 1
    local previous = redis_call('HGET', q.v, back .. key)
    if not previous then
      return walked, true
    end
    local next = redis_call('HGET', q.n, on .. key)
    if not next then
      return depth - walked - 1, true
    end
    back, on, walked = string_sub(previous, 2), string_sub(next, 2), walked + 1
  end
  return walked, false
end

-- Messages before a barrier: the leased ones first. While few are unsettled all of these are told, by id;
-- else only those whose leases run out first.
local function before_barrier(q, walk, barrier)
  local c, leased, others = q.counters, {}, {}
  local function look_at(m)
    if m and m.state ~= 'D' and m.place < barrier.place then
      local list = m.state == 'L' and leased or others
      list[#list + 1] = m
    end
  end
  if c[N.unsettled] <= LOOKED_THROUGH then
    for _, field in ipairs(redis_call('HKEYS', q.c)) do
      if is_place(field) then
        look_at(message_at(q, field))
      end
    end
  else
    for _, member in ipairs(redis_call('ZRANGE', q.due, 0, walk.limit - 1)) do
      if string_sub(member, 1, 1) == 'a' then
        for _, m in ipairs(messages_at(q, places_of(lease_of(q, string_sub(member, 2))))) do
          if m and m.token == string_sub(member, 2) then
            look_at(m)
          end
        end
      end
    end
  end
  local function by_id(a, b)
    return a.id < b.id
  end
  table.sort(leased, by_id)
  table.sort(others, by_id)
  local holders = {}
  for i = 1, math.min(#leased, walk.limit) do
    holders[i] = leased[i]
  end
  for i = 1, math.min(#others, math.min(walk.limit, SHOWN_BEFORE) - #holders) do
    holders[#holders + 1] = others[i]
  end
  local count = c[N.open]
  for _, place in ipairs(redis_call('ZRANGEBYSCORE', q.ba, '-inf', '(' .. barrier.place)) do
    count = count + 1 + (redis_call('HGET', q.bn, place) or 0)
  end
  return { key = '', ahead = count, exact = true, holders = holders }
end

local function blockers(q, walk, m)
  if m.state ~= 'W' and m.state ~= 'G' then
    return {}
  elseif m.barrier then
    return { before_barrier(q, walk, m) }
  end
  local found = {}
  if m.state == 'G' then
    local count = redis_call('ZCOUNT', q.ba, '-inf', '(' .. m.place)
    if count > 0 then
      local first = message_at(q, first_barrier(q))
      found[1] = { key = '', ahead = count, exact = true, holders = { first } }
    end
  end
  for _, list in ipairs({ m.exclusive, m.shared }) do
    for _, key in ipairs(list) do
      local lane = lane_of(q, get(hash(q, 'l'), key))
      local free = string_sub(lane.head, 2) == m.place
      if lane.kind == 'S' then
        free = not lane.first or m.place < string_sub(lane.first, 2)
      end
      if not free then
        local places = granted_on(q, key, walk.limit)
        local ahead, exact = ahead_of(q, walk, m.place, key, lane.depth)
        found[#found + 1] = { key = key, ahead = ahead, exact = exact, holders = messages_at(q, places) }
      end
    end
  end
  return found
end

local function tell_node(q, walk, m, reply)
  local paused = {}
  if STATES[m.state] == 'waiting' or STATES[m.state] == 'ready' then
    paused = m.barrier and {} or paused_keys(q, m)
    if q.counters[N.halted] > 0 then
      table.insert(paused, 1, '')
    end
  end
  local consumer, held, left = '', '', ''
  if m.state == 'L' then
    local lease = lease_of(q, m.token)
    consumer, held = lease.consumer, digits(q.now - to_number(lease.given))
    left = digits(math.max(to_number(lease.deadline) - q.now, 0))
  end
  local due = due_of(q, m)
  append(reply, {
    m.id, #paused > 0 and 'waiting' or STATES[m.state], tostring(attempt_of(m)),
    digits(math.max(q.now - to_number(m.id), 0)), consumer, held, left,
    due == '' and '' or digits(math.max(to_number(due) - q.now, 0)), tostring(#paused),
  })
  append(reply, paused)
  local found = blockers(q, walk, m)
  reply[#reply + 1] = tostring(#found)
  for _, one in ipairs(found) do
    append(reply, { one.key, digits(one.ahead), one.exact and '1' or '0', tostring(#one.holders) })
    for _, holder in ipairs(one.holders) do
      reply[#reply + 1] = holder.id
      add(walk, holder)
    end
  end
end

-- What the walk begins with; false for what is not there.
local function start(q, walk, what, name)
  if what == 'id' then
    local m = find(q, name)
    if m then
      add(walk, m)
    end
    return m
  end
  local text = get(hash(q, 'l'), name)
  local node = text and lane_of(q, text).head
  while node and not walk.truncated do
    add(walk, message_at(q, string_sub(node, 2)))
    node = redis_call('HGET', q.n, string_sub(node, 2) .. name)
  end
  return text
end

register('explain', { 'no-writes' }, function(q, from)
  local what = take_word(from, EXPLAINED, 'what')
  local name
  if what == 'id' then
    name = take_number(from, 'id')
  else
    name = take_text(from, MAX_KEY_BYTES, 'key')
    if name == '' then
      bad(from, 'key', 0, 'is empty')
    end
  end
  local limit = take_whole(from, 1, 1000, 'limit')
  take_end(from)
  look(q)
  local walk = { list = {}, seen = {}, limit = limit, truncated = false, steps = STEPS }
  if not start(q, walk, what, name) then
    return {}
  end
  local reply, told = { '', '' }, 0
  while told < #walk.list do
    told = told + 1
    tell_node(q, walk, walk.list[told], reply)
  end
  reply[1], reply[2] = walk.truncated and '1' or '0', tostring(told)
  return reply
end)
