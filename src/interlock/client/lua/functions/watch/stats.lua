-- il1_stats: counts, as pairs of name and number. It writes nothing and so applies nothing that is
-- due: what ran out since the last call still counts as it did.

-- Ready messages of paused keys that have not come up yet and so were not set aside, as far as they are
-- looked for.
local function paused_ready(q)
  local seen, count, left = {}, 0, MAX_LOOKED_AT
  for _, key in ipairs(description.paused(q, MAX_LOOKED_AT)) do
    local places = description.granted(q, key, left)
    left = left - #places
    for _, place in ipairs(places) do
      local m = message_at(q, place)
      if not seen[place] and (m.state == 'R' or m.state == 'A') then
        seen[place] = true
        count = count + 1
      end
    end
  end
  return count
end

-- The first place of a list that belongs to a message, as far as it is searched.
local function first_listed(q, half)
  local name, most = q[half.list], math.min(q.counters[half.lists], MAX_LOOKED_AT)
  if q.counters[half.stale] == 0 then
    return redis_call('LINDEX', name, 0)
  end
  for first = 0, most - 1, CHUNK do
    local places = redis_call('LRANGE', name, first, math.min(first + CHUNK, most) - 1)
    for i = 1, #places do
      local m = message_at(q, places[i])
      -- A parked message may be there, under its id.
      if m and m.state ~= 'K' then
        return places[i]
      end
    end
  end
end

-- The first place of each priority in a sorted set. Equal scores are sorted by the place, so the first one is the oldest.
local function first_of_each_priority(q, half)
  local places, after = {}, '-inf'
  repeat
    local found = redis_call('ZRANGEBYSCORE', q[half.set], after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    places[#places + 1], after = found[1], found[2] and '(' .. found[2]
  until not after
  return places
end

-- The place of the message that would be leased next, among those not set aside, and that of the
-- oldest of them, of any priority; nil if no message is ready.
local function next_in_line(q)
  local c, place, score, oldest = q.counters, nil, nil, nil
  if c[N.grouped] > 0 then
    oldest = redis_call('ZRANGE', q.go, 0, 0, 'WITHSCORES')[2]
  end
  for _, half in ipairs(KINDS.any) do
    local listed = c[half.lists] > 0 and first_listed(q, half)
    local sorted = c[half.sets] > 0 and redis_call('ZRANGE', q[half.set], 0, 0, 'WITHSCORES') or NONE
    for _, one in ipairs({ { listed, 0 }, { sorted[1], to_number(sorted[2] or 0) } }) do
      if one[1] and (not place or one[2] < score or one[2] == score and one[1] < place) then
        place, score = one[1], one[2]
      end
    end
    for _, one in ipairs(sorted[1] and first_of_each_priority(q, half) or NONE) do
      oldest = oldest and oldest < one and oldest or one
    end
    oldest = listed and not (oldest and oldest < listed) and listed or oldest
  end
  return c[N.grouped] > 0 and turns.next_place(q) or place, oldest
end

-- The first that waits in a lane.
local function first_waiting(q, key)
  local text = get(hash(q, 'l'), key)
  local lane = text and lanes.of(q, text)
  local node = lane and lane.first
  if lane and lane.kind == 'X' and lane.depth > 1 then
    node = redis_call('HGET', q.n, string_sub(lane.head, 2) .. key)
  end
  return node and string_sub(node, 2)
end

-- The first that waits in the lanes of a message.
local function first_behind(q, m)
  local first, left = nil, MAX_FRONT
  for _, list in ipairs({ m.exclusive, m.shared }) do
    for i = 1, math.min(#list, left) do
      local key = list[i]
      local place = first_waiting(q, key)
      first = place and (not first or place < first) and place or first
    end
    left = left - math.min(#list, left)
  end
  return first
end

-- The first live place of the messages behind a barrier, among the first few.
local function first_gated(q, barrier, most)
  for _, place in ipairs(redis_call('LRANGE', name_of(q, 'g:' .. barrier), 0, most - 1)) do
    local m = string_byte(place) ~= 62 and message_at(q, place) -- '>'
    local live = m and m.state == 'G' and place
    if not m and string_byte(place) == 62 then
      live = first_gated(q, string_sub(place, 2), most)
    end
    if live then
      return live
    end
  end
end

-- The first barrier, if it waits, or else the first message behind it.
local function first_at_barrier(q)
  local barriers = q.counters[N.barriers] > 0 and redis_call('ZRANGE', q.ba, 0, 1) or NONE
  local first = barriers[1]
  if not first or message_at(q, first).state == 'W' then
    return first
  end
  return first_gated(q, first, MAX_FRONT) or barriers[2]
end

-- The place of the oldest waiting message, searched behind some of the held, leased and backing-off
-- messages, paused keys, the message that is leased next, and a barrier; 0 if no message waits.
local function oldest_waiting(q, next_place)
  local oldest, c = nil, q.counters
  local function older(place)
    oldest = place and (not oldest or place < oldest) and place or oldest
  end
  if next_place then
    if c[N.halted] > 0 then
      older(next_place)
    end
    older(first_behind(q, message_at(q, next_place)))
  end
  for _, place in ipairs(description.held(q, MAX_FRONT)) do
    older(first_behind(q, message_at(q, place)))
  end
  local seen = 0
  local tokens = description.due(q, 'a', MAX_NAMED, math.min(c[N.leased], MAX_FRONT), 0)
  for i = 1, math.min(#tokens, MAX_FRONT) do
    local token = tokens[i]
    for _, place in ipairs(leases.places(leases.of(q, token))) do
      if seen == MAX_FRONT then
        break
      end
      local m = message_at(q, place)
      if m and m.state == 'L' and m.token == token then
        seen = seen + 1
        older(first_behind(q, m))
      end
    end
  end
  local backing_off = description.due(q, 'b', MAX_NAMED, math.min(c[N.backing_off], MAX_FRONT), 0)
  for i = 1, math.min(#backing_off, MAX_FRONT) do
    older(first_behind(q, message_at(q, backing_off[i])))
  end
  local paused = c[N.paused] > 0 and description.paused(q, MAX_FRONT) or NONE
  for i = 1, math.min(#paused, MAX_FRONT) do
    for _, place in ipairs(description.granted(q, paused[i], MAX_FRONT)) do
      local state = message_at(q, place).state
      if state == 'R' or state == 'A' or state == 'P' or state == 'W' or state == 'G' then
        older(place)
      end
    end
    older(first_waiting(q, paused[i]))
  end
  older(first_at_barrier(q))
  return to_number(oldest or 0)
end

-- The reply of an empty queue. Copying it costs a third of making one: most counts are 0.
local NOTHING = {}
for i = 1, #DECLARED.figures do
  NOTHING[2 * i - 1], NOTHING[2 * i] = DECLARED.figures[i], '0'
end
NOTHING[#NOTHING + 1], NOTHING[#NOTHING + 2] = 'time', '0'

register('stats', function(q, from)
  take_end(from)
  local c = look(q)
  local ready = c[N.halted] == 0 and ready_count(c, 'any') - c[N.ak] - c[N.au] - c[N.hk] - c[N.hu] + c[N.limited] or 0
  if ready > 0 and c[N.paused] > 0 then
    ready = ready - paused_ready(q)
  end
  local now = { ready = ready }
  local next_place, oldest_ready = next_in_line(q)
  now.oldest_ready = ready > 0 and to_number(oldest_ready or 0) or 0
  now.waiting = c[N.unsettled] - c[N.delayed] - c[N.leased] - c[N.backing_off] - c[N.held] - c[N.parked] - ready
  now.oldest_waiting = now.waiting > 0 and oldest_waiting(q, next_place) or 0
  now.paused = c[N.paused] + c[N.halted]
  now.full = no_room(q, 1, 1) and 1 or 0
  local reply = { table_unpack(NOTHING) }
  for i, name in ipairs(DECLARED.figures) do
    local value = now[name] or c[N[name]]
    if value ~= 0 then
      reply[2 * i] = digits(value)
    end
  end
  reply[#reply] = digits(q.now)
  return reply
end)
