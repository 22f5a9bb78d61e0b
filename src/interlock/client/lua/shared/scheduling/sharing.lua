-- Slots of limit names are shared out in turns while the queue has groups (clause 28). Of each name and half at most one
-- message is moved from its lines: the first by priority, the place of its group among those in line, and sequence. It is
-- chosen anew whenever the room or the lines of a name have changed.
--
-- Messages without a group are in the lines of slots.lua, the others in lists and rings of turns.lua under the name.

local HALF_OF = { keyed = 0, unkeyed = 1 }

-- The data of a name while the queue has groups: for each half the score, place and group of the message that was moved, and
-- the number of messages in its lists; and the places of messages without a group, with how many those are.
local function shared_of(q, s)
  local shared, since = s.shared, turns.own(q).since
  if not shared or shared.since ~= since then
    shared = { since = since, moved = { keyed = false, unkeyed = false }, count = { keyed = 0, unkeyed = 0 }, own = {} }
    s.shared = shared
  end
  return shared
end

-- The slots of a name may be another message's now. Answers whether any waits for it.
function slots.note(q, name)
  if q.counters[N.grouped] > 0 then
    q.turns.dirty[name] = true
    return slots.of(q, name).keyed + slots.of(q, name).unkeyed + slots.of(q, name).moved + slots.of(q, name).others > 0
  end
end

-- The place of messages without a group in the line of a name, of one rank. It is (0, 0) if some waited before the queue
-- had groups.
local function own_place(q, name, s, kind, rank)
  local own, at = shared_of(q, s).own, kind .. rank
  local place = own[at]
  if not place then
    local count, score, first = 0, rank - 100, s.first[kind]
    for i = 1, #first, 2 do
      count = count + (first[i] == score and 1 or 0)
    end
    if s[kind] > #first / 2 then
      count = count + slots.count_behind(q, name, kind, score)
    end
    local moved = s.shared.moved[kind]
    if moved and moved[1] == score and not moved[3] then
      count = count + 1
    end
    place = { number = 0, used = 0, count = count }
    own[at] = place
  end
  return place
end

-- The place of a group in the line of a name.
local function place_of(q, name, s, kind, rank, group)
  if group then
    return turns.part(q, name, group, HALF_OF[kind], rank)
  end
  return own_place(q, name, s, kind, rank)
end

-- A message begins to wait for a name.
function slots.enter_shared(q, m, name, s)
  local kind, rank = slots.kind_of(m), turns.rank_of(m)
  local shared = shared_of(q, s)
  if m.group then
    local p = turns.enter_part(q, name, m.group, HALF_OF[kind], rank)
    turns.add(q, p, m.place)
    shared.count[kind], s.others = shared.count[kind] + 1, s.others + 1
  else
    local place = own_place(q, name, s, kind, rank)
    if place.count == 0 then
      place.number, place.used = turns.next(q), 0
    end
    place.count = place.count + 1
    slots.insert(q, name, s, kind, rank - 100, m.place)
  end
  slots.note(q, name)
end

-- It does not wait any more, and is in no line.
local function stop_sharing(q, m, name, s)
  local kind, rank = slots.kind_of(m), turns.rank_of(m)
  local place = place_of(q, name, s, kind, rank, m.group)
  if m.group then
    turns.leave_part(q, place)
  else
    place.count = place.count - 1
    if place.count <= 0 then
      s.shared.own[kind .. rank] = nil
    end
  end
  slots.note(q, name)
end

-- The one that was moved has come up.
function slots.leave_shared(q, m, name, s)
  local shared, kind = shared_of(q, s), slots.kind_of(m)
  stop_sharing(q, m, name, s)
  shared.moved[kind] = false
end

local function put_in_line(q, name, s, kind, score, place, group)
  if group then
    turns.add(q, turns.part(q, name, group, HALF_OF[kind], score + 100), place)
    s.shared.count[kind], s.others = s.shared.count[kind] + 1, s.others + 1
  else
    slots.insert(q, name, s, kind, score, place)
  end
end

-- The one that was moved came up although its name has no room.
function slots.return_shared(q, m, name)
  local s, kind = slots.of(q, name), slots.kind_of(m)
  shared_of(q, s).moved[kind] = false
  s.moved = s.moved - 1
  put_in_line(q, name, s, kind, 0 - priority_of(m), m.place, m.group)
  slots.note(q, name)
end

-- One that was moved may not be leased any more.
local function take_back_moved(q, kind, score, place, group)
  if group then
    turns.hold(q, group, HALF_OF[kind], score + 100, place)
  else
    slots.move_back(q, kind, place)
  end
end

-- Removes a message that waits for a name, or a keeper.
function slots.remove_shared(q, m, name)
  local kind, score = slots.kind_of(m), 0 - priority_of(m)
  if not name then
    take_back_moved(q, kind, score, m.place, m.group)
    return false
  end
  local s = slots.of(q, name)
  local shared = shared_of(q, s)
  local moved, place = shared.moved[kind], place_of(q, name, s, kind, score + 100, m.group)
  stop_sharing(q, m, name, s)
  if moved and moved[2] == m.place then
    take_back_moved(q, kind, score, m.place, m.group)
    shared.moved[kind], s.moved = false, s.moved - 1
  elseif m.group then
    turns.remove(q, place, m.place)
    shared.count[kind], s.others = shared.count[kind] - 1, s.others - 1
  else
    slots.remove_from_line(q, name, s, kind, m.place)
  end
  return true
end

-- A message that waited for a name, and is not a keeper, is leased.
function slots.use_turn(q, m, name)
  if q.counters[N.grouped] == 0 then
    return
  end
  local s = slots.of(q, name)
  local place = place_of(q, name, s, slots.kind_of(m), turns.rank_of(m), m.group)
  turns.use(place, turns.weight_of(q, m.group or ''), turns.next(q))
  if m.group then
    turns.change(q, place)
  end
end

-- The first message in the lines of a half: its order, score, place and group; nil if there is none.
local function first_of(q, name, s, kind)
  local shared, order, score, place, group = s.shared, nil, nil, nil, nil
  if s[kind] > 0 then
    local first = slots.first_in_line(q, name, s, kind)
    score, place, group = first[1], first[2], false
    local own = shared.own[kind .. score + 100]
    order = turns.order(score + 100, own and own.number or 0)
  end
  local p = shared.count[kind] > 0 and turns.front(q, turns.ring(q, name, HALF_OF[kind]), 4)
  if p and (not order or turns.order(p.rank, p.number) < order) then
    order, score, place, group = turns.order(p.rank, p.number), p.rank - 100, turns.first(q, p), p.g.group
  end
  return order, score, place, group
end

local function take_from_line(q, name, s, kind, score, place, group)
  if group then
    turns.remove(q, turns.part(q, name, group, HALF_OF[kind], score + 100), place)
    s.shared.count[kind], s.others = s.shared.count[kind] - 1, s.others - 1
  else
    slots.take_first(q, name, s, kind)
  end
end

local function refresh_half(q, name, s, kind, has_room)
  local shared = s.shared
  local moved = shared.moved[kind]
  local order, score, place, group
  if has_room then
    order, score, place, group = first_of(q, name, s, kind)
  end
  if moved and has_room then
    local of = place_of(q, name, s, kind, moved[1] + 100, moved[3])
    local its = turns.order(moved[1] + 100, of.number)
    if not order or its < order or its == order and moved[2] < place then
      return
    end
  end
  if moved then
    take_back_moved(q, kind, moved[1], moved[2], moved[3])
    put_in_line(q, name, s, kind, moved[1], moved[2], moved[3])
    shared.moved[kind], s.moved = false, s.moved - 1
  end
  if order then
    take_from_line(q, name, s, kind, score, place, group)
    if group then
      turns.let(q, group, HALF_OF[kind], score + 100, place)
    else
      slots.move(q, kind, score, place)
    end
    shared.moved[kind], s.moved = { score, place, group }, s.moved + 1
  end
end

-- Moves the first messages of names whose room or lines have changed.
function slots.refresh(q)
  local dirty = q.turns.dirty
  if next(dirty) == nil then
    return
  end
  q.turns.dirty = {}
  for name in pairs(dirty) do
    local s = slots.of(q, name)
    if q.counters[N.grouped] == 0 then
      slots.move_several(q, name)
    elseif s.keyed + s.unkeyed + s.moved + s.others > 0 then
      shared_of(q, s)
      local has_room = slots.room(q, name) > 0
      refresh_half(q, name, s, 'keyed', has_room)
      refresh_half(q, name, s, 'unkeyed', has_room)
      -- Once the queue has no groups, each that is leased moves the next.
      s.raised = not s.rate and s.keyed + s.unkeyed > 0
    end
  end
end

-- The name for which an earlier message of its group, half and priority waits; nil if there is none.
function slots.own_before(q, m, ordered)
  if q.counters[N.grouped] == 0 then
    return nil
  end
  local kind, rank = slots.kind_of(m), turns.rank_of(m)
  for _, name in ipairs(ordered) do
    local s, first = slots.of(q, name), nil
    if s.keyed + s.unkeyed + s.moved + s.others > 0 then
      local moved = shared_of(q, s).moved[kind]
      if m.group then
        local p = turns.part(q, name, m.group, HALF_OF[kind], rank)
        first = p and p.ready > 0 and turns.first(q, p)
      elseif s[kind] > 0 then
        first = slots.first_of_score(q, name, s, kind, rank - 100)
      end
      if moved and moved[1] == rank - 100 and moved[3] == m.group and not (first and first < moved[2]) then
        first = moved[2]
      end
    end
    if first and first < m.place then
      return name
    end
  end
end

-- The queue has groups from now on: messages that were moved return to their lines, and the first of each is moved again.
function slots.start_sharing(q)
  local c = q.counters
  for kind, half in pairs(HALF_OF) do
    local source = half == 0 and 'ak' or 'au'
    local count = half == 0 and N.ak or N.au
    if c[count] > 0 then
      slots.write_moved(q, kind)
      local places = redis_call('ZRANGE', q[source], 0, -1)
      redis_call('DEL', q[source])
      c[count] = 0
      for _, m in ipairs(messages_at(q, places)) do
        local score = 0 - priority_of(m)
        if m.extras and m.extras.KEEPS then
          slots.move(q, kind, score, m.place)
        else
          local name = slots.names(m)[m.aside]
          local s = slots.of(q, name)
          s.moved = math.max(s.moved - 1, 0)
          slots.insert(q, name, s, kind, score, m.place)
          q.turns.dirty[name] = true
        end
      end
    end
  end
end

-- The queue has groups from now on.
function turns.start(q)
  local stored = q.turns and turns.own(q).stored
  q.turns = q.turns or turns.state()
  q.turns.own = { since = digits(q.counters[N.seq]), places = {}, changed = true, stored = stored }
  if q.slots then
    slots.start_sharing(q)
  end
end

-- The last message with a group is settled.
function turns.stop(q)
  local own = turns.own(q)
  own.since, own.places, own.changed = false, {}, true
  q.counters[N.turn] = 0
  if q.slots then
    slots.refresh(q)
  end
end
