-- Rings of groups, and the places in them: see turns.lua. A ring is read from its front, a few groups at a time, and what the
-- call changes is sorted into what was read. An entry that no longer describes its part is skipped.

local function push(ring, p)
  local scores, parts, score = ring.scores, ring.parts, p.base + p.number
  local low, high = ring.head, ring.last + 1
  if high > low and scores[high - 1] > score then
    while low < high do
      local middle = math.floor((low + high) / 2)
      if scores[middle] <= score then
        low = middle + 1
      else
        high = middle
      end
    end
    table.insert(scores, low, score)
    table.insert(parts, low, p)
  else
    scores[high], parts[high] = score, p
  end
  ring.last = ring.last + 1
end

turns.push = push

-- A ring: of the queue, of what limits let through, or of those in line for a name.
function turns.ring(q, name, half)
  local rings = q.turns.rings[name]
  if not rings then
    rings = {}
    q.turns.rings[name] = rings
  end
  local ring = rings[half]
  if not ring then
    local low = half * 256 * RANK_SPAN
    ring = {
      name = name, key = turns.key_of_ring(q, name), low = low, scores = {}, parts = {}, head = 1, last = 0,
      complete = false, read_to = low - 1, ends = '(' .. digits(low + 256 * RANK_SPAN),
    }
    rings[half] = ring
    for _, g in pairs(q.turns.names[name] or NONE) do
      for _, p in pairs(g and g.parts or NONE) do
        if p.half == half and p.ready > 0 then
          push(ring, p)
        end
      end
    end
  end
  return ring
end

local function read_on(q, ring, most)
  local found = redis_call('ZRANGEBYSCORE', ring.key, '(' .. digits(ring.read_to), ring.ends, 'WITHSCORES', 'LIMIT', 0, most)
  local groups, c = {}, q.counters
  for i = 1, #found, 2 do
    groups[#groups + 1] = string_sub(found[i], 3)
  end
  turns.read(q, ring.name, groups)
  if c[N.hk] + c[N.hu] > 0 and (ring.name == '' or ring.name == turns.OFFERED) then
    turns.read(q, ring.name == '' and turns.OFFERED or '', groups)
  end
  local known = q.turns.names[ring.name]
  for i = 1, #found, 2 do
    local half, rank = string_byte(found[i], 1, 2)
    local p = known[groups[(i + 1) / 2]].parts[half * 256 + rank]
    local score = to_number(found[i + 1])
    -- The ring already has the changes of this call.
    if p and p.ready > 0 and p.placed == score and p.base + p.number == score then
      push(ring, p)
    end
    ring.read_to = score
  end
  ring.complete = #found < 2 * most
end

-- The first part of a ring; nil if it is empty. `most` are read at a time.
function turns.front(q, ring, most)
  local scores, parts = ring.scores, ring.parts
  while true do
    local p, score = parts[ring.head], scores[ring.head]
    while p and (p.ready == 0 or p.base + p.number ~= score) do
      ring.head = ring.head + 1
      p, score = parts[ring.head], scores[ring.head]
    end
    if p and (ring.complete or score <= ring.read_to) then
      return p
    elseif ring.complete then
      return nil
    end
    read_on(q, ring, most)
  end
end

-- Messages without a group.

-- About them: since when the queue has groups, and their places, by half and rank.
function turns.own(q)
  local own = q.turns.own
  if not own then
    local text = redis_call('HGET', q.c, 'g')
    local parts = text and cmsgpack.unpack(text) or { '' }
    own = { since = parts[1], places = {}, changed = false, stored = text }
    for i = 2, #parts, 3 do
      own.places[parts[i]] = { number = parts[i + 1], used = parts[i + 2] }
    end
    q.turns.own = own
  end
  return own
end

-- Their place; without one they are first.
function turns.own_number(q, half, rank)
  local place = turns.own(q).places[half * 256 + rank]
  return place and place.number or 0
end

-- Turns.

function turns.weight_of(q, group)
  local weights = q.turns.weights
  if not weights then
    weights = option(q, 'WEIGHTS')
    q.turns.weights = weights
  end
  return weights == '' and 1 or limit_names.weight_of(weights, group)
end

-- A message uses one of a turn; the last one ends it, and the place is the last from then on.
function turns.use(place, weight, number)
  place.used = place.used + 1
  if place.used >= weight then
    place.number, place.used = number, 0
  end
end

-- Messages that limits let through have the place of their group.
function turns.follow(q, p)
  local c = q.counters
  if c[N.hk] + c[N.hu] > 0 then
    local let = turns.part(q, turns.OFFERED, p.g.group, p.half, p.rank)
    if let and let.number ~= p.number then
      let.number = p.number
      turns.change(q, let)
    end
  end
end
