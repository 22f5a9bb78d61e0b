-- The messages with the smallest ids, and those in a state that few messages have. Redis lists no ids in order, since
-- each put and each ack would pay for it. But the ready messages are listed in order, the leased, delayed and held ones and
-- those that back off are in due and in held, and every other message is behind one of these in a lane. So a walk finds the
-- smallest ids in about as many steps as there are ids.

local state_of = description.state_of

-- Messages that one call puts in order.
local MOST = 5000

-- The states whose messages are in due or held, by their letters in due.
local LETTERS = { leased = 'a', backing_off = 'b', delayed = 'd', held = '' }

-- Counters that say of no message that it waits elsewhere.
local IN_LANES = {
  [N.behind] = true, [N.own] = true, [N.stuck] = true, [N.swept] = true, [N.dying] = true, [N.coalesced] = true,
  [N.coalescing] = true, [N.running] = true, [N.riding] = true,
}

-- Whether every waiting message is behind another one in a lane. Counters that came after `timed` are of what else can hold
-- messages up.
local function wait_in_lanes(c)
  if c[N.rare] == 0 then
    return true
  end
  for i = N.limited, #NEW do
    if c[i] ~= NEW[i] and not IN_LANES[i] then
      return false
    end
  end
  return c[N.paused] + c[N.barriers] + c[N.opening] + c[N.late] + c[N.unfinished] + c[N.returning] == 0
end

-- The places of messages that are leased, back off or are held, and the ids of delayed ones: of all these or of one
-- state. Some of the places may be of other messages. Nil if there are too many.
local function set_apart(q, state)
  local c, places, ids, tokens = q.counters, {}, {}, {}
  local only = state and LETTERS[state]
  if c[N.held] > MOST or redis_call('ZCARD', q.due) > MOST then
    return nil
  elseif c[N.held] > 0 and (not state or state == 'held') then
    places = redis_call('ZRANGE', q.held, 0, -1)
  end
  for _, member in ipairs(only ~= '' and redis_call('ZRANGE', q.due, 0, -1) or NONE) do
    local letter, rest = string_sub(member, 1, 1), string_sub(member, 2)
    if not only or letter == only then
      local list = letter == 'a' and tokens or letter == 'b' and places or letter == 'd' and ids
      if list then
        list[#list + 1] = rest
      end
    end
  end
  prefetch(hash(q, 't'), tokens)
  for i = 1, #tokens do
    description.append(places, leases.places(leases.of(q, tokens[i])))
    if #places > MOST then
      return nil
    end
  end
  return places, ids
end

-- Ascending, each once.
local function in_order(list)
  table.sort(list)
  local all = {}
  for i = 1, #list do
    if list[i] ~= list[i - 1] then
      all[#all + 1] = list[i]
    end
  end
  return all
end

-- The ids above `least` of all messages in a state that is in LETTERS, or nil.
local function ids_in(q, state, least)
  local places, ids = set_apart(q, state)
  if not places then
    return nil
  end
  for _, m in ipairs(messages_at(q, places)) do
    if m and STATES[m.state] == state then
      ids[#ids + 1] = m.id
    end
  end
  local found = {}
  for _, id in ipairs(in_order(ids)) do
    if to_number(id) > least then
      found[#found + 1] = id
    end
  end
  return found
end

-- Appends the first `count` ready places of each list, and of each priority. Answers a place up to which these are all.
local function add_ready(q, count, places)
  local horizon = nil
  local function add(some)
    description.append(places, some)
    local last = #some == count and some[count]
    horizon = last and (not horizon or last < horizon) and last or horizon
  end
  for _, half in ipairs(KINDS.any) do
    add(redis_call('LRANGE', q[half.list], 0, count - 1))
    local at = 0
    local first = redis_call('ZRANGE', q[half.set], at, at, 'WITHSCORES')
    while first[2] do
      add(redis_call('ZRANGEBYSCORE', q[half.set], first[2], first[2], 'LIMIT', 0, count))
      at = redis_call('ZCOUNT', q[half.set], '-inf', first[2])
      first = redis_call('ZRANGE', q[half.set], at, at, 'WITHSCORES')
    end
  end
  return horizon
end

-- Adds a place to a descending list, which has each once.
local function add_once(list, place)
  local low, high = 1, #list + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if list[middle] > place then
      low = middle + 1
    else
      high = middle
    end
  end
  if list[low] ~= place then
    table.insert(list, low, place)
  end
end

-- Adds the messages directly behind one in its lanes. Answers how many lanes that were.
local function add_behind(q, m, line)
  local n = 0
  for _, keys in ipairs({ m.exclusive, m.shared }) do
    for i = 1, #keys do
      local node = redis_call('HGET', q.n, m.place .. keys[i])
      if node then
        add_once(line, string_sub(node, 2))
      end
    end
    n = n + #keys
  end
  return n
end

-- The first `count` ids, of all messages or of those in a state, or nil if a walk does not find them.
local function smallest_ids(q, count, state)
  local c = q.counters
  local ready = count + c[N.aliases] + c[N.sk] + c[N.su]
  local places, ids
  if ready <= MOST and wait_in_lanes(c) then
    places, ids = set_apart(q)
  end
  if not places then
    return nil
  end
  local horizon = add_ready(q, state == 'waiting' and MOST or ready, places)
  places = in_order(places)
  -- The next one is at the end.
  local line, found, steps = {}, {}, MAX_PLACES
  for i = #places, 1, -1 do
    line[#line + 1] = places[i]
  end
  while #line > 0 and #found < count do
    local place = table.remove(line)
    if steps <= 0 or horizon and place > horizon then
      return nil
    end
    local m = message_at(q, place)
    steps = steps - 1
    -- Else it was cancelled or settled.
    if m then
      steps = steps - add_behind(q, m, line)
      if m.id == place and (not state or state_of(q, m) == state) then
        found[#found + 1] = place
      end
    end
  end
  if horizon and #found < count then
    return nil
  end
  -- Messages that were delayed have smaller ids than places.
  if c[N.aliases] > 0 then
    description.append(ids, redis_call('HKEYS', q.al))
  end
  if not state then
    description.append(found, ids)
  else
    for i, m in ipairs(find_all(q, ids)) do
      if m and state_of(q, m) == state then
        found[#found + 1] = ids[i]
      end
    end
  end
  return in_order(found)
end

-- The first `count` ids above `least`, ascending, of all messages or of those in a state. Nil if only a scan finds them.
function description.first_ids(q, count, least, state)
  local found
  if state and LETTERS[state] then
    found = ids_in(q, state, least)
  elseif least == 0 then
    found = smallest_ids(q, count, state)
  end
  return found and { table_unpack(found, 1, math.min(count, #found)) }
end
