-- Turns of plain messages (see plain.lua), as most are, of priority 0. While a group has only such messages, all with keys or
-- all without, its field has one part, which is changed as it is stored, without a table for it. What a call changes so is
-- written before it looks at groups in the general way.

-- Of such a field: how many bytes come before the first places.
local HEAD = 19
local COUNTS_OF = '>I4I4B'
local NUMBERS_OF = '>I6I2I4I4B'
-- The half and the rank, by the half.
local ATS = { [0] = '\0d', '\1d' }

-- The group of each message, and its half; the first few of these lists.
turns.named = {}
turns.halves = {}

-- The texts of these groups, false without one; nil if one of them is not that simple. All are of one part. With `behind` they
-- were read ahead, and follow this number of other fields.
local function texts_of(q, groups, count, at, behind)
  local state = q.turns
  local plain = state.plain
  if #state.changed > 0 or plain and plain.at ~= at then
    return nil
  elseif plain then
    behind = nil
  else
    plain = {
      at = at, texts = {}, stored = {}, entered = {}, gone = {}, oldest = {}, oldest_gone = {}, added = {}, taken = {},
    }
    state.plain = plain
    -- They are read anew.
    state.names[''], state.rings[''] = nil, nil
  end
  local texts, stored, fields, missing, n = plain.texts, plain.stored, {}, {}, 0
  for i = 1, count do
    local group = groups[i]
    if texts[group] == nil then
      n = n + 1
      texts[group], fields[n], missing[n] = false, 'g\0\0' .. group, group
    end
  end
  local found = behind and q.kept or fetch(q.c, fields, n)
  behind = behind or 0
  for i = 1, n do
    local group, text = missing[i], found[behind + i]
    if text then
      texts[group], stored[group] = text, text
      if #text ~= HEAD + 16 * string_byte(text, HEAD) or string_sub(text, 1, 2) ~= at then
        return nil
      end
    end
  end
  return texts, plain
end

-- Writes what was changed so; at the end of a call with all else.
function turns.write_plainly(q, is_end)
  local plain = q.turns.plain
  q.turns.plain = false
  local written, gone = {}, {}
  for group, text in pairs(plain.texts) do
    local field = 'g\0\0' .. group
    if text == (plain.stored[group] or false) then
      -- It was only read.
    elseif is_end and text then
      set_field(q, field, text)
    elseif is_end then
      del_field(q, field)
    elseif text then
      written[#written + 1], written[#written + 2] = field, text
    else
      gone[#gone + 1] = field
    end
  end
  bulk('HSET', q.c, written)
  bulk('HDEL', q.c, gone)
  bulk('ZADD', q.gr, plain.entered)
  bulk('ZREM', q.gr, plain.gone)
  bulk('ZADD', q.go, plain.oldest)
  bulk('ZREM', q.go, plain.oldest_gone)
  bulk('ZREM', q.gq, plain.taken)
  bulk('ZADD', q.gq, plain.added)
end

local function add_to(list, first, second)
  local n = #list
  list[n + 1], list[n + 2] = first, second
end

-- New messages are in the texts of their groups.
local function put_in_texts(q, texts, plain, ids, groups, count, at)
  local c = q.counters
  local base = (string_byte(at) * 256 + 100) * RANK_SPAN
  for i = 1, count do
    local group, id = groups[i], ids[i]
    local text = texts[group]
    if not text then
      local number, member = turns.next(q), at .. group
      texts[group] = at .. struct_pack(NUMBERS_OF, number, 0, 1, 1, 1) .. id
      c[N.groups] = c[N.groups] + 1
      add_to(plain.entered, digits(base + number), member)
      add_to(plain.oldest, id, member)
    else
      local messages, ready, places = struct_unpack(COUNTS_OF, text, 11)
      if ready > places or 16 * places >= turns.first_bytes(group) then
        add_to(plain.added, 0, '\0\0' .. two(#group) .. group .. at .. id)
        id = ''
      else
        places = places + 1
      end
      texts[group] = string_sub(text, 1, 10) .. struct_pack(COUNTS_OF, messages + 1, ready + 1, places)
        .. string_sub(text, HEAD + 1) .. id
      if ready == 0 then
        local member = at .. group
        add_to(plain.entered, digits(base + struct_unpack('>I6', text, 3)), member)
        add_to(plain.oldest, id, member)
      end
    end
  end
end

-- These new messages have a group, and are ready. `half` is false if some have keys and others have not; `keys` are their
-- numbers of keys. For `behind` see texts_of().
function turns.put_plainly(q, ids, groups, half, keys, behind)
  local c, count = q.counters, #ids
  if c[N.grouped] == 0 then
    turns.start(q)
  end
  local texts, plain
  if half then
    texts, plain = texts_of(q, groups, count, ATS[half], behind)
  end
  if texts then
    put_in_texts(q, texts, plain, ids, groups, count, ATS[half])
    c[N.grouped] = c[N.grouped] + count
    c[turns.READY[half]] = c[turns.READY[half]] + count
    return
  end
  turns.read(q, '', groups)
  for i = 1, count do
    turns.ready(q, turns.enter(q, groups[i], keys[i] > 0 and 0 or 1, 100), ids[i])
  end
end

-- This many are settled.
function turns.settle_plainly(q, count)
  local c = q.counters
  local groups, halves = { table_unpack(turns.named, 1, count) }, turns.halves
  local half = halves[1]
  for i = 2, count do
    half = halves[i] == half and half
  end
  local texts = half and texts_of(q, groups, count, ATS[half])
  if not texts then
    turns.read(q, '', groups)
    for i = 1, count do
      turns.leave(q, groups[i], halves[i], 100)
    end
    return
  end
  for i = 1, count do
    local group = groups[i]
    local text = texts[group]
    local left = struct_unpack('>I4', text, 11) - 1
    if left == 0 then
      texts[group] = false
      c[N.groups] = c[N.groups] - 1
    else
      texts[group] = string_sub(text, 1, 10) .. struct_pack('>I4', left) .. string_sub(text, 15)
    end
  end
  c[N.grouped] = c[N.grouped] - count
  if c[N.grouped] == 0 then
    turns.stop(q)
  end
end

-- More places of a group from behind the first ones, as many as are there first, or more.
local function read_behind(q, chosen, group, most)
  local prefix = '\0\0' .. two(#group) .. group .. chosen.at
  local found = redis_call('ZRANGEBYLEX', q.gq, '[' .. prefix, '(' .. prefix .. ':', 'LIMIT', 0,
    math.max(most, turns.first_bytes(group) / 16))
  for i = 1, #found do
    chosen.taken[#chosen.taken + 1] = found[i]
    found[i] = string_sub(found[i], -16)
  end
  return table_concat(found)
end

-- The groups that are next in the only ring that has any, if nothing else could come first; nil if it is not as simple as that.
local function choose(q, wanted)
  local c = q.counters
  local kind, count = wanted.kind, wanted.count
  local half = c[N.gk] > 0 and kind ~= 'unkeyed' and 0 or 1
  if kind == 'any' and c[N.gk] > 0 and c[N.gu] > 0 or #q.turns.changed > 0
    or c[N.fk] + c[N.fu] + c[N.rk] + c[N.ru] + c[N.ak] + c[N.au] + c[N.hk] + c[N.hu] > 0 then
    return nil
  end
  local low = half * 256 * RANK_SPAN
  local members = redis_call('ZRANGEBYSCORE', q.gr, digits(low), '(' .. digits(low + 256 * RANK_SPAN), 'LIMIT', 0, count)
  local at, groups, n = ATS[half], {}, #members
  -- All of one priority, for the ring is sorted by it.
  if n == 0 or string_sub(members[1], 1, 2) ~= at or string_sub(members[n], 1, 2) ~= at then
    return nil
  end
  for i = 1, n do
    groups[i] = string_sub(members[i], 3)
  end
  local texts = texts_of(q, groups, n, at)
  if not texts then
    return nil
  end
  return {
    is_plain = true, at = at, half = half, base = (half * 256 + 100) * RANK_SPAN, members = members, groups = groups,
    texts = texts, made = {}, entered = {}, gone = {}, oldest = {}, taken = {}, added = {}, turn = c[N.turn],
  }
end

-- Notes a group as it is from now on, if the messages are leased.
local function note_group(chosen, i, number, used, messages, ready, first)
  local group, member = chosen.groups[i], chosen.members[i]
  local most = turns.first_bytes(group)
  if #first > most then
    -- Returns messages that were read ahead.
    for k = most + 1, #first, 16 do
      add_to(chosen.added, 0, '\0\0' .. two(#group) .. group .. chosen.at .. string_sub(first, k, k + 15))
    end
    first = string_sub(first, 1, most)
  end
  chosen.made[i] = chosen.at .. struct_pack(NUMBERS_OF, number, used, messages, ready, #first / 16) .. first
  if ready > 0 then
    add_to(chosen.entered, digits(chosen.base + number), member)
    add_to(chosen.oldest, string_sub(first, 1, 16), member)
  else
    chosen.gone[#chosen.gone + 1] = member
  end
end

-- One message of each group, whose turns are one message each.
local function take_one_each(q, chosen, places, count)
  local texts, groups, made, turn = chosen.texts, chosen.groups, chosen.made, chosen.turn
  local entered, oldest, n = chosen.entered, chosen.oldest, 0
  for i = 1, count do
    local text = texts[groups[i]]
    local messages, ready, few = struct_unpack(COUNTS_OF, text, 11)
    places[i] = string_sub(text, 20, 35)
    if few > 1 then
      local number, member = turn + i, chosen.members[i]
      made[i] = chosen.at .. struct_pack(NUMBERS_OF, number, 0, messages, ready - 1, few - 1) .. string_sub(text, 36)
      entered[n + 1], entered[n + 2] = digits(chosen.base + number), member
      oldest[n + 1], oldest[n + 2] = string_sub(text, 36, 51), member
      n = n + 2
    else
      local first = ready > 1 and read_behind(q, chosen, groups[i], 0) or ''
      note_group(chosen, i, turn + i, 0, messages, ready - 1, first)
      n = #entered
    end
  end
  chosen.turn = turn + count
end

-- Messages of a few groups, in turns.
local function take_in_rounds(q, chosen, places, count)
  local line, next, n, states = {}, 1, 0, {}
  for i = 1, #chosen.groups do
    line[i] = i
  end
  while n < count and line[next] do
    local i = line[next]
    local group, state = chosen.groups[i], states[i]
    if not state then
      local text = chosen.texts[group]
      local number, used, messages, ready = struct_unpack('>I6I2I4I4', text, 3)
      state = { number = number, used = used, messages = messages, ready = ready, first = string_sub(text, HEAD + 1) }
      states[i] = state
    end
    local weight = turns.weight_of(q, group)
    -- More than a turn may be used, since another weight was declared.
    local left = math.max(weight - state.used, 1)
    local some = math.min(#line == 1 and count or left, state.ready, count - n)
    local first = state.first
    if #first < 16 * some then
      first = first .. read_behind(q, chosen, group, count)
    end
    for k = 1, some do
      places[n + k] = string_sub(first, 16 * k - 15, 16 * k)
    end
    n, first, state.ready = n + some, string_sub(first, 16 * some + 1), state.ready - some
    if first == '' and state.ready > 0 then
      first = read_behind(q, chosen, group, count)
    end
    state.first = first
    if some < left then
      state.used = state.used + some
    else
      chosen.turn = chosen.turn + 1
      state.number, state.used = chosen.turn, (some - left) % weight
      if state.ready > 0 then
        line[#line + 1] = i
      end
    end
    next = next + 1
  end
  for i, state in pairs(states) do
    note_group(chosen, i, state.number, state.used, state.messages, state.ready, state.first)
  end
end

-- Messages in turns, and their records, without any change; the third answer is for keep_plainly(). Nil if it is not as simple as
-- that.
function turns.pop_plainly(q, wanted)
  local chosen = choose(q, wanted)
  if not chosen then
    return nil
  end
  local places, count = {}, wanted.count
  local has_weights = turns.weight_of(q, '') > 1 or q.turns.weights ~= ''
  if #chosen.groups < count then
    take_in_rounds(q, chosen, places, count)
  elseif has_weights then
    return nil
  else
    take_one_each(q, chosen, places, count)
  end
  return places, fetch(q.c, places), chosen
end

local function add_all(list, more)
  local n = #list
  for i = 1, #more do
    list[n + i] = more[i]
  end
end

-- The messages are leased.
function turns.keep_plainly(q, chosen, leased)
  local plain, c, groups = q.turns.plain, q.counters, chosen.groups
  for i, text in pairs(chosen.made) do
    plain.texts[groups[i]] = text
  end
  add_all(plain.entered, chosen.entered)
  add_all(plain.gone, chosen.gone)
  add_all(plain.oldest, chosen.oldest)
  add_all(plain.oldest_gone, chosen.gone)
  add_all(plain.taken, chosen.taken)
  add_all(plain.added, chosen.added)
  c[N.turn] = chosen.turn
  local count = turns.READY[chosen.half]
  c[count] = c[count] - leased
end
