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
  local found = { sources = sources, lists = {}, at = {}, count = count, cut = false, stale = half == 0 and N.sk or N.su }
  for i = 1, #sources do
    local list = entries_of(q, sources[i], count)
    found.lists[i], found.at[i] = list, 1
    if sources[i].listed and q.counters[found.stale] > 0 then
      local places = {}
      for k = 1, #list do
        places[k] = list[k].place
      end
      local texts = unknown_records(q, places)
      for k = 1, #list do
        local m = q.messages[places[k]]
        list[k].stale = not (texts[k] or m and m.state == 'R' and not m.gone)
      end
    end
  end
  return found
end

-- The first of them, and the number of its source; nil if there is none among those that were read.
local function first_own(q, found)
  local first, from
  for i = 1, #found.lists do
    local list, at = found.lists[i], found.at[i]
    while list[at] and list[at].stale do
      q.counters[found.stale] = q.counters[found.stale] - 1
      at = at + 1
      -- More may follow than were read.
      found.cut = found.cut or at > found.count
    end
    found.at[i] = at
    if list[at] and (not first or comes_before(list[at], first)) then
      first, from = list[at], i
    end
  end
  return first, from
end

-- A place in a ring before a turn is used, and with it.
local function use(q, taken, place, weight, number)
  taken.used[#taken.used + 1] = { place, place.number, place.used }
  turns.use(place, weight, number)
  if place.g then
    turns.change(q, place)
    turns.follow(q, place)
  end
end

-- Takes a message from the list of a group.
local function take_place(q, p)
  local place, count = turns.first(q, p), p.g.name == '' and turns.READY[p.half] or turns.LET[p.half]
  p.first, p.ready = string_sub(p.first, 17), p.ready - 1
  q.counters[count] = q.counters[count] - 1
  if p.g.name ~= '' then
    turns.leave_part(q, p)
  else
    turns.change(q, p)
  end
  return place
end

-- The group that is next, by its highest priority: its name, rank, and order; nil if there is none.
local function next_group(q, halves, own, most)
  local c, order, group, rank = q.counters, NEVER, nil, nil
  local has_let = c[N.hk] + c[N.hu] > 0
  for i = 1, #halves do
    local half = halves[i].number
    for ring = 1, has_let and 2 or 1 do
      local p = turns.front(q, ring == 1 and '' or turns.OFFERED, half, most)
      if p and turns.order(p.rank, p.number) < order then
        order, group, rank = turns.order(p.rank, p.number), p.g.group, p.rank
      end
    end
    local first = own[half] and first_own(q, own[half])
    if first then
      local its = turns.order(100 + first.score, turns.own_number(q, half, 100 + first.score))
      if its < order then
        order, group, rank = its, '', 100 + first.score
      end
    end
  end
  return group, rank
end

-- Takes the first message of a group with this rank.
local function take_of_group(q, halves, group, rank)
  local first, from
  local has_let = q.counters[N.hk] + q.counters[N.hu] > 0
  for i = 1, #halves do
    for ring = 1, has_let and 2 or 1 do
      local p = turns.part(q, ring == 1 and '' or turns.OFFERED, group, halves[i].number, rank)
      local place = p and p.ready > 0 and turns.first(q, p)
      if place and (not first or place < first) then
        first, from = place, p
      end
    end
  end
  take_place(q, from)
  return { place = first, part = from, half = from.half == 0 and WITH_KEYS or WITHOUT, used = {} }
end

local function take_own(q, halves, own, rank)
  local first, from, of
  for i = 1, #halves do
    local found = own[halves[i].number]
    if found then
      local one, number = first_own(q, found)
      if one and 100 + one.score == rank and (not first or one.place < first.place) then
        first, from, of = one, number, found
      end
    end
  end
  of.at[from] = of.at[from] + 1
  return { place = first.place, source = first.source, half = first.source.half, used = {} }
end

local function use_turns(q, halves, taken, group, rank)
  local number, weight = turns.next(q), turns.weight_of(q, group)
  for i = 1, #halves do
    local half = halves[i].number
    if group == '' then
      local own = turns.own(q)
      local at = half * 256 + rank
      own.places[at] = own.places[at] or { number = 0, used = 0 }
      own.changed = true
      use(q, taken, own.places[at], weight, number)
    else
      local p = turns.part(q, '', group, half, rank)
      if p then
        use(q, taken, p, weight, number)
      end
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
  while #places < count do
    local group, rank = next_group(q, halves, own, math.min(count, 128))
    all.is_cut = own[0] and own[0].cut or own[1] and own[1].cut
    if all.is_cut or not group then
      break
    end
    local taken
    if group == '' then
      taken = take_own(q, halves, own, rank)
    else
      taken = take_of_group(q, halves, group, rank)
    end
    use_turns(q, halves, taken, group, rank)
    places[#places + 1], all[#all + 1] = taken.place, taken
  end
  for _, found in pairs(own) do
    for i = 1, found and #found.sources or 0 do
      remove_first(q, found.sources[i], found.at[i] - 1)
    end
  end
  return places, all
end

-- A message uses no turn after all. Later ones have given theirs back before.
function turns.give_back(q, taken)
  for i = #taken.used, 1, -1 do
    local place, number, used = table_unpack(taken.used[i])
    place.number, place.used = number, used
    if place.g then
      turns.change(q, place)
      turns.follow(q, place)
    end
  end
  taken.used = {}
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

-- The message without a group that waits for nothing and would come first, or one with a group; nil if there is none.
function turns.next_place(q)
  local c, halves, own = q.counters, KINDS.any, {}
  local let = { c[N.hk], c[N.hu], c[N.ak], c[N.au] }
  c[N.hk], c[N.hu], c[N.ak], c[N.au] = 0, 0, 0, 0
  for i = 1, #halves do
    local half = halves[i].number
    own[half] = own_messages(q, half, c[half == 0 and N.sk or N.su] > 0 and MAX_LOOKED_AT or 1)
  end
  local group, rank = next_group(q, halves, own, 1)
  local place = group == '' and take_own(q, halves, own, rank).place
    or group and take_of_group(q, halves, group, rank).place
  c[N.hk], c[N.hu], c[N.ak], c[N.au] = table_unpack(let)
  return place or nil
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
    local first = found and first_own(q, found)
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
