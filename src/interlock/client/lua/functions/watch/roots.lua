-- il1_roots: duration count
-- What holds others up: messages that are held, back off or have been leased for `duration` µs, and paused
-- keys. Answers how many were found and whether those are all, then `count` of them, those with most messages
-- in their lanes first: kind, id, key, depth, time, consumer.

local function deeper(a, b)
  if a.depth ~= b.depth then
    return a.depth > b.depth
  elseif a.id ~= b.id then
    return #a.id < #b.id or #a.id == #b.id and a.id < b.id
  end
  return limit_names.below(a.key, b.key)
end

-- Whether one more with this many keys may be examined; if not, some are left out.
local function may(search, keys)
  local allowed = #search.found < MAX_ROOTS and search.named > 0
  search.exact = search.exact and allowed
  search.named = search.named - keys
  return allowed
end

-- How many messages are parked for a key.
local function parked_on(q, key)
  return q.counters[N.parked] > 0 and redis_call('ZCARD', name_of(q, 'pb:' .. key)) or 0
end

local function add(search, kind, id, key, depth, time, consumer)
  search.found[#search.found + 1] = {
    kind = kind, id = id, key = key, depth = depth, time = time, consumer = consumer,
  }
end

-- False: the limit is reached.
local function look_at_message(q, search, m)
  if not may(search, 1 + #m.exclusive + #m.shared) then
    return false
  end
  local c, depth, deepest, deepest_key = q.counters, 0, 0, ''
  for _, list in ipairs({ m.exclusive, m.shared }) do
    for _, key in ipairs(list) do
      local lane = lanes.of(q, get(hash(q, 'l'), key))
      depth = depth + lane.depth - lane.active + parked_on(q, key)
      if lane.depth > deepest then
        deepest, deepest_key = lane.depth, key
      end
    end
  end
  if m.barrier then
    -- Everything that has a place is behind it.
    depth = c[N.unsettled] - c[N.delayed] - c[N.parked] - 1
  end
  local time, consumer = '', ''
  if m.state == 'L' then
    local lease = leases.of(q, m.token)
    time, consumer = digits(q.now - to_number(lease.given)), lease.consumer
  elseif m.state == 'B' then
    time = digits(math.max(to_number(description.due_of(q, m)) - q.now, 0))
  end
  add(search, STATES[m.state], m.id, deepest_key, depth, time, consumer)
  return true
end

local function look_at_paused(q, search)
  local c = q.counters
  if c[N.halted] > 0 then
    local aside = c[N.delayed] + c[N.leased] + c[N.backing_off] + c[N.held] + c[N.parked]
    add(search, 'paused', '', '', c[N.unsettled] - aside, '', '')
  end
  for _, key in ipairs(description.paused(q, MAX_ROOTS + 1)) do
    if not may(search, 1) then
      return
    end
    local text = get(hash(q, 'l'), key)
    add(search, 'paused', '', key, (text and lanes.of(q, text).depth or 0) + parked_on(q, key), '', '')
  end
end

local function look_at_leases(q, search, long)
  local leased = q.counters[N.leased]
  local tokens, complete = description.due(q, 'a', MAX_TIMES, math.min(leased, MAX_NAMED), leased)
  search.exact = search.exact and complete
  for _, token in ipairs(tokens) do
    local lease = leases.of(q, token)
    if to_number(lease.given) + long <= q.now then
      for _, place in ipairs(leases.places(lease)) do
        local m = message_at(q, place)
        if m and m.state == 'L' and m.token == token and not look_at_message(q, search, m) then
          return
        end
      end
    end
  end
end

local function look_at_places(q, search, places)
  for _, place in ipairs(places) do
    if not look_at_message(q, search, message_at(q, place)) then
      return
    end
  end
end

local function look_at_backing_off(q, search)
  local number = q.counters[N.backing_off]
  local places, complete = description.due(q, 'b', MAX_TIMES, math.min(number, MAX_ROOTS + 1), number)
  search.exact = search.exact and complete
  look_at_places(q, search, places)
end

register('roots', function(q, from)
  local long = take.whole(from, 0, MAX_SPAN, 'duration')
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  take_end(from)
  look(q)
  local search = { found = {}, exact = true, named = MAX_NAMED }
  look_at_paused(q, search)
  look_at_places(q, search, description.held(q, MAX_ROOTS + 1))
  look_at_leases(q, search, long)
  look_at_backing_off(q, search)
  table.sort(search.found, deeper)
  local reply = { tostring(#search.found), search.exact and '1' or '0' }
  for i = 1, math.min(count, #search.found) do
    local root = search.found[i]
    description.append(reply, { root.kind, root.id, root.key, digits(root.depth), root.time, root.consumer })
  end
  return reply
end)
