-- Descriptions of messages by the reading functions.

-- A table of functions: a library is limited to 200 names.
local description = {}

-- The first places of a lane that nothing on this key blocks, up to a limit.
function description.granted(q, key, most)
  local text, places = get(hash(q, 'l'), key), {}
  local lane = text and lanes.of(q, text)
  if not lane then
    return places
  end
  local node = lane.head
  while node and node ~= lane.first and #places < most do
    places[#places + 1] = string_sub(node, 2)
    if lane.kind == 'X' then
      break
    end
    node = redis_call('HGET', q.n, string_sub(node, 2) .. key)
  end
  return places
end

-- Some paused keys, or all if there are no more than the limit.
function description.paused(q, most)
  if redis_call('HLEN', q.pk) <= most then
    return redis_call('HKEYS', q.pk)
  end
  local keys, found = {}, redis_call('HSCAN', q.pk, '0', 'COUNT', most)[2]
  for i = 1, #found, 2 do
    keys[#keys + 1] = found[i]
  end
  return keys
end

-- The places of held messages, the first ones.
function description.held(q, most)
  return q.counters[N.held] > 0 and redis_call('ZRANGE', q.held, 0, most - 1) or NONE
end

-- The entries of one letter among the first few due ones (see due.lua), until enough are found;
-- and whether all were examined, given their number.
function description.due(q, letter, most, enough, number)
  local found, at, page = {}, 0, 500
  while at < most and #found < enough do
    local members = redis_call('ZRANGE', q.due, at, at + page - 1)
    for i = 1, #members do
      if string_sub(members[i], 1, 1) == letter then
        found[#found + 1] = string_sub(members[i], 2)
      end
    end
    if #members < page then
      return found, true
    end
    at = at + page
  end
  return found, #found >= number
end

-- A ready message that is paused waits.
local function state_of(q, m)
  if (m.state == 'R' or m.state == 'A') and (q.counters[N.halted] > 0 or pauses.first_of(q, m)) or m.state == 'P' then
    return 'waiting'
  end
  return STATES[m.state]
end

function description.carries(m, key)
  for _, keys in ipairs({ m.exclusive, m.shared }) do
    for i = 1, #keys do
      if keys[i] == key then
        return true
      end
    end
  end
  return false
end

local function append(reply, list)
  for _, value in ipairs(list) do
    reply[#reply + 1] = value
  end
end

-- When a delay or a backoff ends, or the time of death, else ''.
local function due_of(q, m)
  if m.state == 'X' then
    return m.due
  elseif m.state == 'D' then
    return redis_call('ZSCORE', q.due, 'd' .. m.id)
  elseif m.state == 'B' then
    return redis_call('ZSCORE', q.due, 'b' .. m.place)
  end
  return ''
end

-- How many bytes the payload, the keys and the errors of a message have.
function description.bytes_told(payload, exclusive, shared, history)
  local bytes = #payload + #history
  for i = 1, #exclusive do
    bytes = bytes + #exclusive[i]
  end
  for i = 1, #shared do
    bytes = bytes + #shared[i]
  end
  return bytes
end

local function tell(q, m, reply)
  local extras, options, payload = m.extras or NONE, {}, payload_of(q, m)
  for _, option in ipairs(DECLARED.message) do
    local name = option.name
    local value = extras[name]
    if name == 'BARRIER' and m.barrier then
      value = 1
    elseif name == 'LIMIT' then
      value = m.limit or nil
    elseif name == 'GROUP' then
      value = m.group or nil
    elseif name == 'COALESCE' and value then
      -- The record only says that there is one.
      value = m.exclusive[1]
    end
    if value ~= nil then
      options[#options + 1] = name
      options[#options + 1] = type(value) == 'number' and digits(value) or value
    end
  end
  append(reply, {
    m.id, extras.SEQUENCE or m.id ~= m.place and m.place or '', tostring(attempt_of(m)), payload,
    tostring(#m.exclusive), tostring(#m.shared), tostring(#options / 2),
  })
  append(reply, m.exclusive)
  append(reply, m.shared)
  append(reply, options)
  append(reply, { state_of(q, m), due_of(q, m), extras.ERROR or '' })
  return description.bytes_told(payload, m.exclusive, m.shared, extras.ERROR or '')
end

-- Shows fields of c, or of another hash, about this many, until `look` has returned enough bytes. Answers
-- the next cursor, and whether no more should be shown.
local function each_field(q, cursor, count, look, name)
  local bytes, full = 0, false
  repeat
    local found = redis_call('HSCAN', name or q.c, cursor, 'COUNT', READ_AT_ONCE)
    cursor = found[1]
    for i = 1, #found[2], 2 do
      bytes = bytes + #found[2][i + 1] + (look(found[2][i], found[2][i + 1]) or 0)
    end
    count = count - #found[2] / 2
    full = count <= 0 or bytes >= MAX_TOLD
  until cursor == '0' or full
  return cursor, full
end

-- Shows dead letters, id and record, from one rank to another, until `look` says that it is enough.
local function each_dead(q, first, last, look, way)
  for start = first, last, READ_AT_ONCE do
    local ids = redis_call((way or 'Z') .. 'RANGE', q.xo, start, math.min(start + READ_AT_ONCE - 1, last))
    for i, text in ipairs(fetch(q.x, ids)) do
      if look(ids[i], text) then
        return
      end
    end
    if #ids < READ_AT_ONCE then
      return
    end
  end
end

-- A dead letter in the form of a message: answers it, and the bytes of its payload and keys.
local function tell_dead_one(q, id, text, reply)
  local dead = cmsgpack.unpack(text)
  local m = {
    id = id, place = id, state = 'X', due = dead[3], tail = dead.payload, outside = dead.outside,
    barrier = dead.barrier, limit = dead.extras.LIMIT, group = dead.extras.GROUP, exclusive = dead.exclusive, shared = dead.shared, extras = dead.extras,
  }
  m.extras.ATTEMPT, m.extras.ERROR = dead[2], dead[1]
  return m, tell(q, m, reply)
end

local function take_cursor(from)
  local cursor = take.argument(from, 'cursor')
  if #cursor > 20 or not string_find(cursor, '^%d+$') then
    bad(from, 'cursor', 0, 'is not a cursor that this queue gives')
  end
  return cursor
end

description.state_of, description.append, description.due_of, description.tell = state_of, append, due_of, tell
description.each_field, description.each_dead, description.tell_dead_one = each_field, each_dead, tell_dead_one
description.take_cursor = take_cursor
