-- Rewriting a record costs more than the rest of a lease. So records of plain messages always say
-- R, and a mark has the token of each that is leased; the mark is removed once the record is
-- changed.

local EXTRAS, SHARES, BARRIER, OUTSIDE, LIMITED, SEVERAL, GROUPED = 1, 2, 4, 8, 16, 32, 64

local STATES = {
  R = 'ready', P = 'ready', A = 'ready', W = 'waiting', G = 'waiting',
  L = 'leased', Y = 'leased', B = 'backing_off', H = 'held', D = 'delayed', K = 'parked', X = 'dead',
}

-- Flags, as a byte, of a record with one limit name and, besides a payload, only exclusive keys; and with a group instead.
local LIMITED_FLAG = 64
local GROUPED_FLAG = 112

-- Never changed: most messages lack some list, and a table costs time.
local NONE = {}

-- As a put makes one of which nothing else was named.
local function plain_message(payload, exclusive)
  return { payload = payload, tail = payload, exclusive = exclusive, shared = NONE, delay = 0, plain = true }
end

-- As a put makes one. All fields are named at once: a table that grows costs more than what is in it.
local function new_message(payload, exclusive)
  return {
    payload = payload, tail = payload, exclusive = exclusive, shared = NONE, delay = 0, id = false,
    place = false, state = false, blocked = 0, changed = false, barrier = false, outside = false, limit = false,
    group = false,
  }
end

-- The rest of a record, with its flags, extras, limit names, group, keys and tail. The tail is the payload, or its
-- length if it is stored outside.
local function rest_of(m)
  local exclusive, shared = m.exclusive, m.shared
  if #exclusive == 1 and #shared == 0 and not m.extras and not m.outside and not m.limit and not m.group then
    local key = exclusive[1]
    return '0\0\1' .. two(#key) .. key .. m.tail
  end
  local flags = (m.barrier and BARRIER or 0) + (m.outside and OUTSIDE or 0)
  local extras = m.extras
  local parts = { '', '', two(#exclusive), '' }
  if extras then
    flags = flags + EXTRAS
    local packed = cmsgpack.pack(extras)
    parts[2] = two(#packed) .. packed
  end
  if m.limit then
    flags = flags + (string_find(m.limit, '\31', 1, true) and SEVERAL or LIMITED)
    parts[2] = parts[2] .. two(#m.limit) .. m.limit
  end
  if m.group then
    flags = flags + GROUPED
    parts[2] = parts[2] .. two(#m.group) .. m.group
  end
  if #shared > 0 then
    flags = flags + SHARES
    parts[4] = two(#shared)
  end
  parts[1] = string.char(48 + flags)
  for i = 1, #exclusive do
    parts[#parts + 1] = two(#exclusive[i]) .. exclusive[i]
  end
  for i = 1, #shared do
    parts[#parts + 1] = two(#shared[i]) .. shared[i]
  end
  parts[#parts + 1] = m.tail
  return table_concat(parts)
end

local function two_at(text, at)
  local high, low = string_byte(text, at, at + 1)
  return high * 256 + low
end

local function keys_at(text, at, count)
  local keys = {}
  for i = 1, count do
    local length = two_at(text, at)
    keys[i] = string_sub(text, at + 2, at + 1 + length)
    at = at + 2 + length
  end
  return keys, at
end

local function unpack_record(place, text)
  local state = string_sub(text, 1, 1)
  local from, blocked, token, aside, limit, group = 2, 0, nil, nil, false, false
  local riders = nil
  if state == 'L' then
    token, from = string_sub(text, 2, 17), 18
  elseif state == 'Y' then
    token, riders, from = string_sub(text, 2, 17), to_number(string_sub(text, 18, 21)), 22
  elseif state == 'W' or state == 'G' then
    blocked, from = to_number(string_sub(text, 2, 5)), 6
  elseif state == 'A' then
    aside, from = string_byte(text, 2) - 48, 3
  end
  local flags, high, low, long, short = string_byte(text, from, from + 4)
  if flags == 48 and high == 0 and low == 1 then
    -- One exclusive key and nothing else, as most have.
    local length = long * 256 + short
    return {
      place = place, id = place, state = state, blocked = blocked, token = token,
      exclusive = { string_sub(text, from + 5, from + 4 + length) }, shared = NONE,
      barrier = false, outside = false, text = text, from = from, at = from + 5 + length,
      changed = false, limit = false, group = false,
    }
  end
  flags = flags - 48
  local at, extras = from + 1, nil
  if flags % 2 == EXTRAS then
    local length = two_at(text, at)
    extras = cmsgpack.unpack(string_sub(text, at + 2, at + 1 + length))
    at = at + 2 + length
  end
  if flags % GROUPED >= LIMITED then
    local length = two_at(text, at)
    limit = string_sub(text, at + 2, at + 1 + length)
    at = at + 2 + length
  end
  if flags >= GROUPED then
    local length = two_at(text, at)
    group = string_sub(text, at + 2, at + 1 + length)
    at = at + 2 + length
  end
  local count, readers = two_at(text, at), 0
  at = at + 2
  if flags % 4 >= SHARES then
    readers = two_at(text, at)
    at = at + 2
  end
  local exclusive, shared = NONE, NONE
  if count > 0 then
    exclusive, at = keys_at(text, at, count)
    -- A rider waits on each of them.
    blocked = riders and count or blocked
  end
  if readers > 0 then
    shared, at = keys_at(text, at, readers)
  end
  return {
    place = place, id = extras and extras.ID or place, state = state, blocked = blocked, token = token,
    extras = extras, exclusive = exclusive, shared = shared,
    barrier = flags % 8 >= BARRIER, outside = flags % 16 >= OUTSIDE, limit = limit, aside = aside, group = group,
    riders = riders, text = text, from = from, at = at, changed = false,
  }
end

-- As unpack_record(), of a record that a mark may say is leased.
local function open_record(q, place, text)
  local m = unpack_record(place, text)
  if m.state == 'R' and q.counters[N.leased] > 0 then
    local token = get(hash(q, 'lt'), place)
    if token then
      m.state, m.token, m.marked = 'L', token, true
    end
  end
  return m
end

-- Whether a field of c is a message's.
local function is_place(field)
  local first = string_byte(field)
  return first >= 48 and first <= 57
end

local function tail_of(m)
  return m.tail or string_sub(m.text, m.at)
end

local function size_of(m)
  if m.outside then
    return to_number(tail_of(m))
  end
  return m.tail and #m.tail or #m.text - m.at + 1
end

local function payload_of(q, m)
  return m.outside and redis_call('HGET', q.y, m.id) or tail_of(m)
end

local HEADS = {
  L = function(m) return 'L' .. m.token end,
  Y = function(m) return string_format('Y%s%04d', m.token, m.riders) end,
  W = function(m) return string_format('W%04d', m.blocked) end,
  G = function(m) return string_format('G%04d', m.blocked) end,
  A = function(m) return string.char(65, 48 + m.aside) end,
}

local function pack_record(m)
  if m.state == 'L' and m.text then
    return 'L' .. m.token .. string_sub(m.text, m.from)
  end
  local head = HEADS[m.state]
  -- The rest is unchanged, unless something in it was changed.
  local rest = m.text and string_sub(m.text, m.from) or rest_of(m)
  return (head and head(m) or m.state) .. rest
end

-- Fields that only few messages have: PRIORITY, DEDUP, WINDOW, RESULT, QUIET, BEHIND, RUN and the policy, as the
-- put named them, ID (of a message that was delayed or parked, whose place is another), those of parked ones (see
-- parking.lua), STUCK and DYING (see shut_keys.lua), RETURNED, after a lease that did not count as an attempt, ATTEMPT from
-- the second on, ERROR, COALESCE, which says that the first key is a coalescing name, REVISION and LATEST, until when a debounce
-- may delay it, PASSES and KEEPS (see admission.lua), OPENS (see openings.lua), ALONE, the token of the lease that
-- ran out while its handler may have run, and SILENT, how often in a row one then ran out of which nothing was said.
local function extra(m, name, value)
  m.tail = tail_of(m)
  m.text = nil
  m.extras = m.extras or {}
  m.extras[name] = value
end

-- A message no longer has to be leased alone.
local function unsuspect(m)
  extra(m, 'ALONE', nil)
  m.extras.SILENT = nil
end

local function priority_of(m)
  return m.extras and m.extras.PRIORITY or 0
end

local function attempt_of(m)
  return m.extras and m.extras.ATTEMPT or 1
end

local function keyed(m)
  return m.barrier or #m.exclusive + #m.shared > 0
end

-- Messages by their places, false for missing ones. The call sees its own changes.
local function messages_at(q, places)
  local known, missing, found = q.messages, {}, {}
  for i = 1, #places do
    local place = places[i]
    if known[place] == nil then
      known[place] = false
      missing[#missing + 1] = place
    end
  end
  if #missing > 0 then
    local texts, ready = fetch(q.c, missing), {}
    for i = 1, #missing do
      local text = texts[i]
      if text and string_byte(text) == 82 then -- 'R'
        ready[#ready + 1] = missing[i]
      end
    end
    if q.counters[N.leased] > 0 then
      prefetch(hash(q, 'lt'), ready)
    end
    for i = 1, #missing do
      local text, place = texts[i], missing[i]
      if text then
        known[place] = open_record(q, place, text)
      end
    end
  end
  for i = 1, #places do
    found[i] = known[places[i]]
  end
  return found
end

-- The records of places of which this call knows nothing yet: false where it does.
local function unknown_records(q, places)
  local known, missing, texts = q.messages, {}, {}
  for i = 1, #places do
    if known[places[i]] == nil then
      missing[#missing + 1] = places[i]
    end
  end
  local found, at = fetch(q.c, missing), 0
  for i = 1, #places do
    if known[places[i]] == nil then
      at = at + 1
      texts[i] = found[at]
    else
      texts[i] = false
    end
  end
  return texts
end

local function message_at(q, place)
  local m = q.messages[place]
  if m == nil then
    local text = redis_call('HGET', q.c, place)
    m = text and open_record(q, place, text)
    q.messages[place] = m
  end
  return m
end

-- By their ids. A number that is a place but not an id belongs to no message.
local function find_all(q, ids)
  local found, moved, places, at = messages_at(q, ids), {}, {}, {}
  for i = 1, #ids do
    local m = found[i]
    if m and m.id ~= ids[i] then
      found[i] = false
    elseif not m and q.counters[N.aliases] > 0 then
      moved[#moved + 1] = ids[i]
    end
  end
  if #moved == 0 then
    return found
  end
  prefetch(hash(q, 'al'), moved)
  for i = 1, #ids do
    local place = hash(q, 'al').values[ids[i]]
    if place then
      places[#places + 1], at[#at + 1] = place, i
    end
  end
  for i, m in ipairs(messages_at(q, places)) do
    found[at[i]] = m
  end
  return found
end

local function find(q, id)
  return find_all(q, { id })[1]
end

local function changed(q, m)
  if not m.changed then
    m.changed = true
    q.changed[#q.changed + 1] = m
  end
end

local function flush_messages(q)
  -- Data that plain messages left there (see plain.lua).
  local written, gone = q.written, q.gone
  local list = q.changed
  for i = 1, #list do
    local m = list[i]
    m.changed = false
    if m.marked then
      set(hash(q, 'lt'), m.place, false)
      m.marked = false
    end
    if m.gone then
      gone[#gone + 1] = m.place
    else
      local at = #written
      written[at + 1] = m.place
      written[at + 2] = pack_record(m)
    end
  end
  q.changed, q.written, q.gone = {}, {}, {}
  for i = 1, #written, 2 do
    set_field(q, written[i], written[i + 1])
  end
  for i = 1, #gone do
    del_field(q, gone[i])
  end
end
