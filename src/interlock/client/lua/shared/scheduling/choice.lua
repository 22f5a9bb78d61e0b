-- The choice of the next messages while the queue has groups (clause 28): the highest priority, then the group whose turn
-- it is, then sequence. A message that is taken uses one of its group's turn at once; one that is not leased after all
-- gives it back.

local sources_of, entries_of, comes_before = ready_sources.of, ready_sources.entries, ready_sources.comes_before
local remove_first, push_back = ready_sources.remove_first, ready_sources.push_back

local MAX_AHEAD = 1000
local PAGE_AHEAD = 500

-- Messages without a group of one half that may be leased, from all of their sources.
local function own_messages(q, half, count)
  local sources = sources_of(q.counters, half == 0 and 'keyed' or 'unkeyed')
  if #sources == 0 then
    return false
  end
  local stale = half == 0 and N.sk or N.su
  local found = { sources = sources, lists = {}, at = {}, count = count, cut = false, stale = stale, skipped = 0 }
  for i = 1, #sources do
    local list = entries_of(q, sources[i], count)
    found.lists[i], found.at[i] = list, 1
    if sources[i].listed and q.counters[stale] > 0 then
      local places = {}
      for k = 1, #list do
        places[k] = list[k].place
      end
      local texts = unknown_records(q, places)
      for k = 1, #list do
        local m, text = q.messages[places[k]], texts[k]
        -- 'R': under its id there may be a parked message.
        list[k].stale = not (text and string_byte(text) == 82 or m and m.state == 'R' and not m.gone)
      end
    end
  end
  return found
end

-- The first of them, and the number of its source; nil if there is none among those that were read.
local function first_own(found)
  local first, from
  for i = 1, #found.lists do
    local list, at = found.lists[i], found.at[i]
    while list[at] and list[at].stale do
      found.skipped, at = found.skipped + 1, at + 1
    end
    found.at[i] = at
    -- Some were skipped, and more may follow than were read.
    found.cut = found.cut or at > found.count
    if list[at] and (not first or comes_before(list[at], first)) then
      first, from = list[at], i
    end
  end
  return first, from
end

-- A message that is taken uses one of a turn in the ring of a half; what was there before is noted.
local function use(q, taken, place, weight, number)
  local used = place.used
  if taken.first then
    taken.second, taken.second_number, taken.second_used = place, place.number, used
  else
    taken.first, taken.first_number, taken.first_used = place, place.number, used
  end
  turns.use(place, weight, number)
  if place.g then
    turns.change(q, place)
    turns.follow(q, place)
  end
end

-- The rings of these halves.
local function rings_of(q, halves)
  local rings, has_let = {}, q.counters[N.hk] + q.counters[N.hu] > 0
  for i = 1, #halves do
    rings[#rings + 1] = turns.ring(q, '', halves[i].number)
    if has_let then
      rings[#rings + 1] = turns.ring(q, turns.OFFERED, halves[i].number)
    end
  end
  return rings, has_let
end

-- The group that is next, by its highest priority: its first part, or '' of messages without a group, and the rank; nil if there
-- is none.
local function next_group(q, halves, rings, own, most)
  local order, next, rank = NEVER, nil, nil
  for i = 1, #rings do
    local ring = rings[i]
    local p = turns.front(q, ring, most)
    if p and p.base + p.number - ring.low < order then
      order, next, rank = p.base + p.number - ring.low, p, p.rank
    end
  end
  for i = 1, #halves do
    local half = halves[i].number
    local first = own[half] and first_own(own[half])
    if first then
      local its = turns.order(100 + first.score, turns.own_number(q, half, 100 + first.score))
      if its < order then
        order, next, rank = its, '', 100 + first.score
      end
    end
  end
  return next, rank
end

-- Takes the first message of a group with the rank of this part.
local function take_of_group(q, halves, p, has_let)
  local g, c = p.g, q.counters
  local let = has_let and turns.group(q, turns.OFFERED, g.group)
  if g.name ~= '' then
    g = turns.group(q, '', g.group)
  end
  local first = turns.first(q, p)
  if let or #halves > 1 then
    local rank = p.rank
    for i = 1, #halves do
      local at = halves[i].number * 256 + rank
      for k = 1, let and 2 or 1 do
        local other = (k == 1 and g or let).parts[at]
        if other and other ~= p and other.ready > 0 then
          local place = turns.first(q, other)
          if place < first then
            first, p = place, other
          end
        end
      end
    end
  end
  local half = p.half
  p.first, p.ready = string_sub(p.first, 17), p.ready - 1
  -- A part of the queue is written because its place changes, too.
  if p.g == g then
    c[turns.READY[half]] = c[turns.READY[half]] - 1
  else
    c[turns.LET[half]] = c[turns.LET[half]] - 1
    turns.leave_part(q, p)
  end
  return {
    place = first, part = p, g = g, half = half == 0 and WITH_KEYS or WITHOUT, first = false, first_number = 0,
    first_used = 0, second = false, second_number = 0, second_used = 0,
  }
end

-- Takes the first message without a group of this rank.
local function take_own(q, halves, own, rank)
  local first, from, of
  for i = 1, #halves do
    local found = own[halves[i].number]
    if found then
      local one, number = first_own(found)
      if one and 100 + one.score == rank and (not first or one.place < first.place) then
        first, from, of = one, number, found
      end
    end
  end
  of.at[from] = of.at[from] + 1
  return { place = first.place, source = first.source, half = first.source.half, g = false, first = false, second = false }
end

local function use_turns(q, halves, taken, rank)
  local number, g = turns.next(q), taken.g
  local weight = turns.weight_of(q, g and g.group or '')
  for i = 1, #halves do
    local at = halves[i].number * 256 + rank
    if g then
      local p = g.parts[at]
      if p and p.count > 0 then
        use(q, taken, p, weight, number)
      end
    else
      local own = turns.own(q)
      own.places[at] = own.places[at] or { number = 0, used = 0 }
      own.changed = true
      use(q, taken, own.places[at], weight, number)
    end
  end
end

-- Takes up to this many messages in turns. Answers their places and, of each, how it was taken.
function turns.pop(q, kind, count)
  local halves, own, places, all = KINDS[kind], {}, {}, { in_turns = true }
  q.turns.wanted = count
  for i = 1, #halves do
    own[halves[i].number] = own_messages(q, halves[i].number, count)
  end
  local rings, has_let = rings_of(q, halves)
  while #places < count do
    local next, rank = next_group(q, halves, rings, own, math.min(count, 128))
    all.is_cut = own[0] and own[0].cut or own[1] and own[1].cut
    if all.is_cut or not next then
      break
    end
    local taken
    if next == '' then
      taken = take_own(q, halves, own, rank)
    else
      taken = take_of_group(q, halves, next, has_let)
    end
    use_turns(q, halves, taken, rank)
    local number = #places + 1
    places[number], all[number] = taken.place, taken
  end
  for _, found in pairs(own) do
    for i = 1, found and #found.sources or 0 do
      remove_first(q, found.sources[i], found.at[i] - 1)
    end
    if found then
      q.counters[found.stale] = q.counters[found.stale] - found.skipped
    end
  end
  return places, all
end

-- A message uses no turn after all. Later ones have given theirs back before.
function turns.give_back(q, taken)
  for i = 1, 2 do
    local place = i == 1 and taken.second or i == 2 and taken.first
    if place then
      place.number = i == 1 and taken.second_number or taken.first_number
      place.used = i == 1 and taken.second_used or taken.first_used
      if place.g then
        turns.change(q, place)
        turns.follow(q, place)
      end
    end
  end
  taken.first, taken.second = false, false
end

-- A message that is leased with the one before it uses one of a turn of its group, too.
function turns.ride(q, m, kind)
  local g = m.group and turns.group(q, '', m.group)
  use_turns(q, KINDS[kind], { g = g, first = false, second = false }, turns.rank_of(m))
end

-- Messages that were taken but not leased return.
function turns.push_back(q, all, first)
  for i = #all, first, -1 do
    local taken = all[i]
    turns.give_back(q, taken)
    if taken.part then
      local p = taken.part
      if p.g.name == '' then
        turns.ready(q, p, taken.place)
      else
        turns.let(q, p.g.group, p.half, p.rank, taken.place)
      end
    else
      push_back(q, { taken.place }, 1, { taken.source })
    end
  end
end

-- The message that would be taken next, if limits let none through; nil if there is none.
function turns.next_place(q)
  local c, halves, own = q.counters, KINDS.any, {}
  local let = { c[N.hk], c[N.hu], c[N.ak], c[N.au] }
  c[N.hk], c[N.hu], c[N.ak], c[N.au] = 0, 0, 0, 0
  for i = 1, #halves do
    local half = halves[i].number
    own[half] = own_messages(q, half, c[half == 0 and N.sk or N.su] > 0 and MAX_LOOKED_AT or 1)
  end
  local next, rank = next_group(q, halves, (rings_of(q, halves)), own, 1)
  local taken = next == '' and take_own(q, halves, own, rank) or next and take_of_group(q, halves, next)
  c[N.hk], c[N.hu], c[N.ak], c[N.au] = table_unpack(let)
  return taken and taken.place
end

-- Groups that come before one of this rank, by the messages of its half that wait for no limit; at most MAX_AHEAD.
function turns.ahead(q, group, half, rank)
  local own, count, seen, at = nil, 0, {}, 0
  if group then
    own = turns.order(rank, turns.part(q, '', group, half, rank).number)
    local found = own_messages(q, half, q.counters[half == 0 and N.sk or N.su] > 0 and MAX_LOOKED_AT or 1)
    if found then
      for i = 1, #found.sources do
        if found.sources[i].kind then
          found.lists[i] = {}
        end
      end
    end
    local first = found and first_own(found)
    if first and turns.order(100 + first.score, turns.own_number(q, half, 100 + first.score)) < own then
      count = 1
    end
  else
    own = turns.order(rank, turns.own_number(q, half, rank))
  end
  local low = half * 256 * turns.order(1, 0)
  local ends = '(' .. digits(low + own)
  while count < MAX_AHEAD and at < MAX_LOOKED_AT do
    local found = redis_call('ZRANGEBYSCORE', q.gr, digits(low), ends, 'LIMIT', at, PAGE_AHEAD)
    for i = 1, #found do
      local other = string_sub(found[i], 3)
      if other ~= group and not seen[other] then
        seen[other], count = true, count + 1
      end
    end
    at = at + PAGE_AHEAD
    if #found < PAGE_AHEAD then
      break
    end
  end
  return math.min(count, MAX_AHEAD)
end
