-- Groups take turns (clause 28). While an unsettled message has a group, each group has a place for its messages with keys
-- and for those without, of each priority: a number, the lowest is next. A ring has the groups with something to lease,
-- sorted by priority and number. A limit name has rings of its own for the groups that wait for it; see shares.lua.
--
-- The field g NAME GROUP of c has the parts of a group, one for each half (0: with keys) and rank (100 less the
-- priority): the number, how many messages of the turn are used, how many messages it has, how many of them are in its
-- list, and the first of that list. NAME is empty for the queue, or a limit name; of the messages that limits let through
-- it is the byte 31. The field g alone is about messages without a group; their lists are the ones of ready.lua.
--
-- | key | holds |
-- |---|---|
-- | gr, gm, lr:NAME | rings: of ready groups, of those that limits let through, of those in line for a name |
-- | gq | messages in the lists of groups behind the first ones, sorted by name, group, half, rank and place |
-- | go | of each part with ready messages: the first |

-- Numbers in a rank. At 100,000 turns a second that is five years.
local RANK_SPAN = 17592186044416
local PART = '>I2I6I2I4I4B'

-- A table of functions: a library is limited to 200 names.
local turns = { OFFERED = '\31' }

-- Counters of ready messages, and of those that limits let through, by their half.
turns.READY = { [0] = N.gk, N.gu }
turns.LET = { [0] = N.hk, N.hu }

function turns.state()
  return { names = {}, changed = {}, rings = {}, added = {}, taken = {}, own = false, dirty = {}, weights = false, plain = false }
end

function turns.half_of(m)
  return keyed(m) and 0 or 1
end

function turns.rank_of(m)
  return 100 - priority_of(m)
end

-- The order of a place among all of its half.
function turns.order(rank, number)
  return rank * RANK_SPAN + number
end

-- The next number of a place.
function turns.next(q)
  local c = q.counters
  local number = c[N.turn] + 1
  c[N.turn] = number
  return number
end

-- Bytes of the first places of a group's lists, 8 to 24 places. They differ, so that groups whose turns alternate do not read
-- on in the same call.
function turns.first_bytes(group)
  return 128 + (#group + string_byte(group, -1)) % 17 * 16
end

-- A part without messages. Its score in a ring is `base` and the number.
local function new_part(g, at)
  local half = at < 256 and 0 or 1
  local p = {
    g = g, half = half, rank = at - half * 256, base = at * RANK_SPAN, number = 0, used = 0, count = 0, ready = 0,
    first = '', placed = false, oldest = false, is_read = false,
  }
  g.parts[at] = p
  return p
end

local function opened(known, field, name, group, text)
  local g, at = {
    field = field, name = name, group = group, parts = {}, total = 0, stored = text, changed = false,
    bytes = turns.first_bytes(group),
  }, 1
  while text and at <= #text do
    local key, number, used, count, ready, places, first = struct_unpack(PART, text, at)
    local p, last = new_part(g, key), first + 16 * places
    p.number, p.used, p.count, p.ready, p.first, at = number, used, count, ready, string_sub(text, first, last - 1), last
    if ready > 0 then
      p.placed, p.oldest = p.base + number, string_sub(text, first, first + 15)
    end
    g.total = g.total + count
  end
  known[group] = g
  return g
end

local function known_of(q, name)
  if q.turns.plain then
    turns.write_plainly(q)
  end
  local known = q.turns.names[name]
  if not known then
    known = {}
    q.turns.names[name] = known
  end
  return known
end

function turns.group(q, name, group)
  local known = known_of(q, name)
  local g = known[group]
  if not g then
    local field = 'g' .. two(#name) .. name .. group
    g = opened(known, field, name, group, redis_call('HGET', q.c, field))
  end
  return g
end

-- Reads these groups with one command.
function turns.read(q, name, groups)
  local known, fields, missing, n, head = known_of(q, name), {}, {}, 0, 'g' .. two(#name) .. name
  for i = 1, #groups do
    local group = groups[i]
    if known[group] == nil then
      known[group], n = false, n + 1
      fields[n], missing[n] = head .. group, group
    end
  end
  local found = fetch(q.c, fields, n)
  for i = 1, n do
    opened(known, fields[i], name, missing[i], found[i])
  end
end

-- Reads the groups of these messages.
function turns.look_at(q, messages)
  local groups = {}
  for i = 1, #messages do
    local m = messages[i]
    if type(m) == 'table' and m.group then
      groups[#groups + 1] = m.group
    end
  end
  if #groups > 1 then
    turns.read(q, '', groups)
  end
end

-- A part of a group; nil if it has no messages.
function turns.part(q, name, group, half, rank)
  local p = turns.group(q, name, group).parts[half * 256 + rank]
  return p and p.count > 0 and p or nil
end

-- Lists: the first places are in one string, and all others are behind them.

-- Others would be between those of different groups: the lengths tell them apart.
local function prefix_of(p)
  local name, group = p.g.name, p.g.group
  return two(#name) .. name .. two(#group) .. group .. two(p.base / RANK_SPAN)
end

-- Writes what was taken from there, and what came there since.
local function write_behind(q)
  local state = q.turns
  bulk('ZREM', q.gq, state.taken)
  bulk('ZADD', q.gq, state.added)
  state.taken, state.added = {}, {}
end

local function add_behind(q, p, place)
  local added = q.turns.added
  added[#added + 1], added[#added + 2] = 0, prefix_of(p) .. place
end

-- The first place of a list that has one.
function turns.first(q, p)
  if p.first == '' then
    local state, prefix = q.turns, prefix_of(p)
    if #state.added > 0 or p.is_read then
      write_behind(q)
    end
    p.is_read = true
    local most = math.max(p.g.bytes / 16, math.min(state.wanted or 0, 128))
    local found = redis_call('ZRANGEBYLEX', q.gq, '[' .. prefix, '(' .. prefix .. ':', 'LIMIT', 0, most)
    for i = 1, #found do
      state.taken[#state.taken + 1] = found[i]
      found[i] = string_sub(found[i], -16)
    end
    p.first = table_concat(found)
  end
  return string_sub(p.first, 1, 16)
end

-- It is written at the end of the call.
function turns.change(q, p)
  local g, state = p.g, q.turns
  if not g.changed then
    g.changed = true
    state.changed[#state.changed + 1] = g
  end
  if p.ready > 0 then
    local rings = state.rings[g.name]
    local ring = rings and rings[p.half]
    if ring then
      turns.push(ring, p)
    end
  end
end

-- Adds a place to a list.
function turns.add(q, p, place)
  local first = p.first
  local bytes, behind = #first, p.ready - #first / 16
  p.ready = p.ready + 1
  if behind == 0 and bytes < p.g.bytes and (bytes == 0 or string_sub(first, -16) < place) then
    p.first = first .. place
  elseif bytes > 0 and (behind == 0 and bytes < p.g.bytes or place < string_sub(first, -16)) then
    local at = bytes - 16
    while at > 0 and string_sub(first, at - 15, at) > place do
      at = at - 16
    end
    p.first = string_sub(first, 1, at) .. place .. string_sub(first, at + 1)
    if bytes >= p.g.bytes then
      add_behind(q, p, string_sub(p.first, -16))
      p.first = string_sub(p.first, 1, -17)
    end
  else
    add_behind(q, p, place)
  end
  turns.change(q, p)
end

-- Removes a place from a list.
function turns.remove(q, p, place)
  local first = p.first
  p.ready = p.ready - 1
  for at = 1, #first, 16 do
    if string_sub(first, at, at + 15) == place then
      p.first = string_sub(first, 1, at - 1) .. string_sub(first, at + 16)
      turns.change(q, p)
      return
    end
  end
  write_behind(q)
  redis_call('ZREM', q.gq, prefix_of(p) .. place)
  turns.change(q, p)
end

-- Messages come and go.

-- A message more in a part, which gets a place with the first one.
function turns.enter_part(q, name, group, half, rank)
  local g, at = turns.group(q, name, group), half * 256 + rank
  local p = g.parts[at] or new_part(g, at)
  if p.count == 0 then
    p.number, p.used = turns.next(q), 0
  end
  p.count, g.total = p.count + 1, g.total + 1
  turns.change(q, p)
  return p
end

function turns.leave_part(q, p)
  p.count, p.g.total = p.count - 1, p.g.total - 1
  turns.change(q, p)
end

-- A message is put.
function turns.enter(q, group, half, rank)
  local c = q.counters
  if c[N.grouped] == 0 then
    turns.start(q)
  end
  c[N.grouped] = c[N.grouped] + 1
  local p = turns.enter_part(q, '', group, half, rank)
  if p.g.total == 1 then
    c[N.groups] = c[N.groups] + 1
  end
  return p
end

-- A message is settled.
function turns.leave(q, group, half, rank)
  local c, p = q.counters, turns.part(q, '', group, half, rank)
  turns.leave_part(q, p)
  if p.g.total == 0 then
    c[N.groups] = c[N.groups] - 1
  end
  c[N.grouped] = c[N.grouped] - 1
  if c[N.grouped] == 0 then
    turns.stop(q)
  end
end

-- A message is ready.
function turns.ready(q, p, place)
  local count = turns.READY[p.half]
  q.counters[count] = q.counters[count] + 1
  turns.add(q, p, place)
end

-- It is no longer ready, without having been leased.
function turns.withdraw(q, m)
  local p = turns.part(q, '', m.group, turns.half_of(m), turns.rank_of(m))
  local count = turns.READY[p.half]
  q.counters[count] = q.counters[count] - 1
  turns.remove(q, p, m.place)
end

-- A message that limits let through may be leased.
function turns.let(q, group, half, rank, place)
  local c, count = q.counters, turns.LET[half]
  c[count] = c[count] + 1
  local p = turns.enter_part(q, turns.OFFERED, group, half, rank)
  p.number = turns.part(q, '', group, half, rank).number
  turns.add(q, p, place)
end

-- It may not be any more.
function turns.hold(q, group, half, rank, place)
  local c, count = q.counters, turns.LET[half]
  c[count] = c[count] - 1
  local p = turns.part(q, turns.OFFERED, group, half, rank)
  turns.remove(q, p, place)
  turns.leave_part(q, p)
end

-- Writing.

function turns.key_of_ring(q, name)
  if name == '' then
    return q.gr
  end
  return name == turns.OFFERED and q.gm or name_of(q, 'lr:' .. name)
end

local function packed_part(q, p)
  local bytes, first = p.g.bytes, p.first
  if #first > bytes then
    -- Returns messages that a long call has read ahead.
    for at = bytes + 1, #first, 16 do
      add_behind(q, p, string_sub(first, at, at + 15))
    end
    first = string_sub(first, 1, bytes)
    p.first = first
  elseif first == '' and p.ready > 0 then
    turns.first(q, p)
    first = p.first
  end
  return struct_pack(PART, p.base / RANK_SPAN, p.number, p.used, p.count, p.ready, #first / 16) .. first
end

-- Lists what changes in the sorted sets.
local function note_sorted(p, ring, oldest)
  local ready, member = p.ready > 0, nil
  local score = ready and p.base + p.number
  if score ~= p.placed then
    member = two(p.base / RANK_SPAN) .. p.g.group
    if score then
      local entered = ring.entered
      entered[#entered + 1], entered[#entered + 2] = digits(score), member
    else
      ring.gone[#ring.gone + 1] = member
    end
    p.placed = score
  end
  if oldest then
    local first = ready and string_sub(p.first, 1, 16)
    if first ~= p.oldest then
      member = member or two(p.base / RANK_SPAN) .. p.g.group
      if first then
        local entered = oldest.entered
        entered[#entered + 1], entered[#entered + 2] = first, member
      else
        oldest.gone[#oldest.gone + 1] = member
      end
      p.oldest = first
    end
  end
end

local function write_own(q)
  local own = q.turns.own
  if not own or not own.changed then
    return
  elseif own.since then
    local parts = { own.since }
    for at, place in pairs(own.places) do
      parts[#parts + 1], parts[#parts + 2], parts[#parts + 3] = at, place.number, place.used
    end
    set_field(q, 'g', cmsgpack.pack(parts))
  elseif own.stored then
    del_field(q, 'g')
  end
end

function turns.flush(q)
  if q.turns.plain then
    turns.write_plainly(q, true)
  end
  local state = q.turns
  local changed, oldest, rings = state.changed, { entered = {}, gone = {} }, {}
  if #changed == 0 and #state.added == 0 and #state.taken == 0 and not state.own then
    q.turns = false
    return
  end
  for i = 1, #changed do
    local g, text = changed[i], false
    local name = g.name
    local ring = rings[name]
    if not ring then
      ring = { entered = {}, gone = {} }
      rings[name] = ring
    end
    for _, p in pairs(g.parts) do
      if p.count > 0 then
        local part = packed_part(q, p)
        text = text and text .. part or part
      end
      note_sorted(p, ring, name == '' and oldest)
    end
    if text ~= g.stored then
      if text then
        set_field(q, g.field, text)
      elseif g.stored then
        del_field(q, g.field)
      end
    end
  end
  for name, ring in pairs(rings) do
    local key = turns.key_of_ring(q, name)
    bulk('ZADD', key, ring.entered)
    bulk('ZREM', key, ring.gone)
  end
  bulk('ZADD', q.go, oldest.entered)
  bulk('ZREM', q.go, oldest.gone)
  write_behind(q)
  write_own(q)
  q.turns = false
end
