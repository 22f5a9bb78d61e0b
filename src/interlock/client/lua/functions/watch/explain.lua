-- il1_explain: id ID limit, or key KEY limit
-- Why a message waits, or what blocks a key (clause 17): breadth first, each message once, cut at the limit.
-- Nothing if it does not exist.

local EXPLAINED = { id = true, key = true, told = 'id or key' }
local STEPS = 2000         -- nodes looked at in all, to count how many are ahead of others
local LOOKED_THROUGH = 1000 -- unsettled messages looked through for those before a barrier
local MANY_FIELDS = 20000       -- of c, if there are fewer, are checked for them
local READ_BYTES = 4194304       -- bytes read of these messages
local SHOWN_BEFORE = 10    -- of these are named, beyond those that are leased; and stuck ones of a key
local LOOKED_AT = 100      -- stuck ones of a key, the first of which by id are named

-- The messages of an explanation, in the order of the answer.
local WALK = {}
WALK.__index = WALK

function WALK.add(walk, m)
  if walk.seen[m.id] then
    return
  elseif #walk.list == walk.limit then
    walk.truncated = true
  else
    walk.seen[m.id] = true
    walk.list[#walk.list + 1] = m
  end
end

-- Whether one more may be named; if not, the answer is incomplete.
function WALK.may_name(walk)
  local may = walk.named > 0 and walk.bytes > 0
  walk.truncated = walk.truncated or not may
  return may
end

-- Counts a named message: naming it requires a pass through its keys.
function WALK.charge(walk, m)
  local count, bytes = 1, 0
  if not walk.seen[m.id] then
    for _, list in ipairs({ m.exclusive, m.shared }) do
      count = count + #list
      for i = 1, #list do
        bytes = bytes + #list[i]
      end
    end
  end
  walk.named, walk.bytes = walk.named - count, walk.bytes - bytes
end

-- The messages of these places, as far as they are named; each will be in the answer. They are read
-- one by one, because a record may be a megabyte.
function WALK.name_all(walk, q, places, holders)
  for i = 1, math.min(#places, walk.limit) do
    if not walk:may_name() then
      break
    end
    local m = message_at(q, places[i])
    walk:charge(m)
    holders[#holders + 1] = m
    walk:add(m)
  end
  return holders
end

-- The number of nodes before a place on a key, counted from the nearer end; and whether the count
-- is complete.
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

-- The leased messages and, while few are unsettled, the others that have a place, each by id; else
-- only the leased messages whose leases expire first.
local function look_around(q, walk)
  local leased, others, read = {}, {}, 0
  local function look_at(places, token)
    for _, place in ipairs(places) do
      if read >= READ_BYTES then
        walk.truncated = true
        return
      end
      local m = message_at(q, place)
      if m and m.state ~= 'D' and m.state ~= 'K' and (not token or m.token == token) then
        read = read + #(m.text or '')
        local list = STATES[m.state] == 'leased' and leased or others
        list[#list + 1] = m
      end
    end
  end
  if q.counters[N.unsettled] <= LOOKED_THROUGH and redis_call('HLEN', q.c) <= MANY_FIELDS then
    local places = {}
    for _, field in ipairs(redis_call('HKEYS', q.c)) do
      if is_place(field) then
        places[#places + 1] = field
      end
    end
    look_at(places)
  else
    for _, member in ipairs(redis_call('ZRANGE', q.due, 0, walk.limit - 1)) do
      if string_sub(member, 1, 1) == 'a' and #leased < walk.limit then
        local token = string_sub(member, 2)
        look_at(leases.places(leases.of(q, token)), token)
      end
    end
  end
  local function by_id(a, b)
    return a.id < b.id
  end
  table.sort(leased, by_id)
  table.sort(others, by_id)
  return { leased, others }
end

-- Unsettled messages before a barrier, counted from whichever end is nearer with half of the steps left; and
-- whether to the end.
function description.before_barrier(q, walk, place)
  local c = q.counters
  local before = redis_call('ZCOUNT', q.ba, '-inf', '(' .. place)
  local behind, most = c[N.barriers] - before, math.floor(walk.steps / 2)
  local function count(places)
    local sum = #places
    for _, after in ipairs(fetch(q.bn, places)) do
      sum = sum + (after or 0)
    end
    walk.steps = walk.steps - #places
    return sum
  end
  if behind < before and behind <= most then
    local placed = c[N.unsettled] - c[N.delayed] - c[N.parked]
    return placed - count(redis_call('ZRANGEBYSCORE', q.ba, place, '+inf')), true
  end
  local counted = math.min(before, most)
  local first = counted > 0 and redis_call('ZRANGE', q.ba, 0, counted - 1) or {}
  return c[N.open] + count(first), before <= most
end

-- Messages before a barrier: the leased ones first.
local function before_barrier(q, walk, barrier)
  local ahead, exact = description.before_barrier(q, walk, barrier.place)
  walk.placed = walk.placed or look_around(q, walk)
  local holders = {}
  local function before(all, most)
    local places = {}
    most = math.min(most, math.max(walk.named, 1))
    for _, m in ipairs(all) do
      if #places >= most then
        break
      elseif m.place < barrier.place then
        places[#places + 1] = m.place
      elseif walk.steps == 0 then
        break
      else
        walk.steps = walk.steps - 1
      end
    end
    walk:name_all(q, places, holders)
  end
  before(walk.placed[1], walk.limit)
  before(walk.placed[2], math.min(walk.limit, SHOWN_BEFORE) - #holders)
  return { key = '', ahead = ahead, exact = exact, holders = holders }
end

local function blockers(q, walk, m)
  if m.state ~= 'W' and m.state ~= 'G' and m.state ~= 'Y' then
    return {}
  elseif m.barrier then
    return { before_barrier(q, walk, m) }
  end
  local found = {}
  if m.state == 'G' then
    local count = redis_call('ZCOUNT', q.ba, '-inf', '(' .. m.place)
    if count > 0 then
      local holders = walk:name_all(q, { barriers.first(q) }, {})
      found[1] = { key = '', ahead = count, exact = true, holders = holders }
    end
  end
  for _, list in ipairs({ m.exclusive, m.shared }) do
    for _, key in ipairs(list) do
      local lane = lanes.of(q, get(hash(q, 'l'), key))
      local free = string_sub(lane.head, 2) == m.place
      if lane.kind == 'S' then
        free = not lane.first or m.place < string_sub(lane.first, 2)
      end
      if not free then
        local places = description.granted(q, key, math.min(walk.limit, math.max(walk.named, 1)))
        local holders = walk:name_all(q, places, {})
        local ahead, exact = ahead_of(q, walk, m.place, key, lane.depth)
        found[#found + 1] = { key = key, ahead = ahead, exact = exact, holders = holders }
      end
    end
  end
  return found
end

-- Places of the leased messages that carry a limit name, which are looked for once.
local function carriers(q, walk, name)
  local found = walk.carriers
  if not found then
    walk.placed = walk.placed or look_around(q, walk)
    found = {}
    for _, leased in ipairs(walk.placed[1]) do
      for _, one in ipairs(leased.limit and slots.names(leased) or NONE) do
        found[one] = found[one] or {}
        found[one][#found[one] + 1] = leased.place
      end
    end
    walk.carriers = found
  end
  return found[name] or NONE
end

-- The limit names that refuse a message: those without a slot, with the leased messages that carry them, and those
-- that are closed or whose rate is used up.
local function tell_limits(q, walk, m, reply)
  local at, count = #reply + 1, 0
  reply[at] = '0'
  if not m.limit or m.blocked > 0 or STATES[m.state] ~= 'ready' then
    return
  end
  for _, name in ipairs(slots.names(m)) do
    local s, holders = slots.of(q, name), {}
    local keeps = s.kept and s.keeper == m.place
    local full = slots.unused(q, name) < 1 and not keeps
    local opens = rates.opens(q, name, s, m.place)
    if full then
      walk:name_all(q, carriers(q, walk, name), holders)
    end
    if full or opens > q.now then
      count = count + 1
      description.append(reply, {
        name, s.most < NEVER and digits(s.most) or '', digits(s.leased),
        s.kept and not keeps and message_at(q, s.keeper).id or '',
        opens > q.now and opens < NEVER and digits(opens - q.now) or '', tostring(#holders),
      })
      for _, holder in ipairs(holders) do
        reply[#reply + 1] = holder.id
      end
    end
  end
  reply[at] = tostring(count)
end

-- The stuck messages of a key that are named, by id.
local function stuck_on(q, key)
  local found = {}
  for _, m in ipairs(messages_at(q, redis_call('ZRANGE', name_of(q, 'st:' .. key), 0, LOOKED_AT - 1))) do
    if m and m.extras and m.extras.STUCK then
      found[#found + 1] = m
    end
  end
  table.sort(found, function(a, b)
    return a.id < b.id
  end)
  local places = {}
  for i = 1, math.min(#found, SHOWN_BEFORE) do
    places[i] = found[i].place
  end
  return places
end

-- Where a message is parked, and the stuck messages for which it is.
local function tell_parking(q, walk, m, reply)
  if m.state ~= 'K' then
    reply[#reply + 1] = '0'
    return
  end
  local key = m.extras.UNDER
  local ahead = redis_call('ZRANK', name_of(q, 'pb:' .. key), m.id)
  local holders = walk:name_all(q, stuck_on(q, key), {})
  description.append(reply, {
    '1', key, digits(math.max(q.now - m.extras.SINCE, 0)), tostring(m.extras.PARKED), tostring(math.min(ahead, MAX_ROOTS)),
    behind.is_paused(q, key) and '1' or '0', tostring(#holders),
  })
  for _, holder in ipairs(holders) do
    reply[#reply + 1] = holder.id
  end
end

-- The turn of a message that may come up: its group, how many of that are ready, and how many groups come before it.
local function tell_turn(q, m, reply)
  local c = q.counters
  if c[N.grouped] == 0 or m.blocked > 0 or STATES[m.state] ~= 'ready' then
    reply[#reply + 1] = '0'
    return
  end
  local half, rank, ready = turns.half_of(m), turns.rank_of(m), 0
  if m.group then
    for _, p in pairs(turns.group(q, '', m.group).parts) do
      ready = ready + p.ready
    end
  else
    ready = c[N.fk] + c[N.rk] - c[N.sk] + c[N.fu] + c[N.ru] - c[N.su]
  end
  description.append(reply, { '1', m.group or '', digits(ready), digits(turns.ahead(q, m.group, half, rank)) })
end

local function tell_node(q, walk, m, reply)
  local paused = {}
  if STATES[m.state] == 'waiting' or STATES[m.state] == 'ready' then
    paused = m.barrier and {} or pauses.of(q, m)
    if q.counters[N.halted] > 0 then
      table.insert(paused, 1, '')
    end
  end
  local consumer, held, left = '', '', ''
  if STATES[m.state] == 'leased' then
    local lease = leases.of(q, m.token)
    consumer, held = lease.consumer, digits(q.now - to_number(lease.given))
    left = digits(math.max(to_number(lease.deadline) - q.now, 0))
  end
  local due = description.due_of(q, m)
  description.append(reply, {
    m.id, #paused > 0 and 'waiting' or STATES[m.state], tostring(attempt_of(m)),
    digits(math.max(q.now - to_number(m.id), 0)), consumer, held, left,
    due == '' and '' or digits(math.max(to_number(due) - q.now, 0)), tostring(#paused),
  })
  description.append(reply, paused)
  tell_limits(q, walk, m, reply)
  tell_turn(q, m, reply)
  tell_parking(q, walk, m, reply)
  local found = blockers(q, walk, m)
  reply[#reply + 1] = tostring(#found)
  for _, one in ipairs(found) do
    description.append(reply, { one.key, digits(one.ahead), one.exact and '1' or '0', tostring(#one.holders) })
    for _, holder in ipairs(one.holders) do
      reply[#reply + 1] = holder.id
    end
  end
end

-- The start of the walk; false if it does not exist.
local function start(q, walk, what, name)
  if what == 'id' then
    local m = find(q, name)
    if m then
      walk:add(m)
    end
    return m
  end
  local text = get(hash(q, 'l'), name)
  local parked = not text and q.counters[N.parked] > 0 and redis_call('ZRANGE', name_of(q, 'pb:' .. name), 0, 0)[1]
  if parked then
    walk:add(message_at(q, parked))
    return true
  end
  local node = text and lanes.of(q, text).head
  while node and not walk.truncated do
    local place = string_sub(node, 2)
    if #walk.list > 0 then
      walk:name_all(q, { place }, {})
    else
      walk:add(message_at(q, place))
    end
    node = redis_call('HGET', q.n, string_sub(node, 2) .. name)
  end
  return text
end

register('explain', function(q, from)
  local what = take.word(from, EXPLAINED, 'what')
  local name
  if what == 'id' then
    name = take.number(from, 'id')
  else
    name = take.text(from, MAX_KEY_BYTES, 'key')
    if name == '' then
      bad(from, 'key', 0, 'is empty')
    end
  end
  local limit = take.whole(from, 1, 1000, 'limit')
  take_end(from)
  look(q)
  local walk = setmetatable({
    list = {}, seen = {}, limit = limit, truncated = false, steps = STEPS, named = MAX_NAMED, bytes = MAX_NAMED_BYTES,
  }, WALK)
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
