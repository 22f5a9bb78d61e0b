-- Hashes of which a call sees its own changes: a field is read once, and what was changed is written
-- once, at the end of the call. So a call that is refused has written nothing.

-- One command for many fields. Lua's stack takes 8,000 values; the number is even, for pairs.
local CHUNK = 4000

local function bulk(command, key, list, count)
  count = count or #list
  if count == 0 then
    return
  end
  if count <= CHUNK then
    redis_call(command, key, table_unpack(list, 1, count))
    return
  end
  for first = 1, count, CHUNK do
    redis_call(command, key, table_unpack(list, first, math.min(first + CHUNK - 1, count)))
  end
end

-- The values of many fields of a hash, false for each that is not there.
local function fetch(key, fields, count)
  count = count or #fields
  if count == 0 then
    return {}
  end
  if count <= CHUNK then
    return redis_call('HMGET', key, table_unpack(fields, 1, count))
  end
  local all = {}
  for first = 1, count, CHUNK do
    local part = redis_call('HMGET', key, table_unpack(fields, first, math.min(first + CHUNK - 1, count)))
    for i = 1, #part do
      all[#all + 1] = part[i]
    end
  end
  return all
end

-- Whether a call has neither read nor changed anything that is written at its end, as most have
-- not.
local function untouched(q)
  return #q.used == 0 and #q.changed == 0 and #q.written == 0 and next(q.messages) == nil
end

-- The fields of c that the call sets and deletes: q.sets and q.dels have the lengths of the parts
-- of this call. The lists are reused, as are others of the quick path: a new list that has to grow
-- costs more than its contents.
local SETS = {}
local DELS = {}
local STAYS = 1000

local function set_field(q, field, value)
  local sets, n = SETS, q.sets
  sets[n + 1], sets[n + 2] = field, value
  q.sets = n + 2
end

local function del_field(q, field)
  local n = q.dels + 1
  DELS[n], q.dels = field, n
end

-- No call both writes a field and deletes it, except for the reply of a consumer that was silent
-- for long: so deletions come first.
local function write_out(q)
  bulk('HDEL', q.c, DELS, q.dels)
  bulk('HSET', q.c, SETS, q.sets)
  if q.dels > STAYS or q.sets > STAYS then
    SETS, DELS = {}, {}
  end
  q.sets, q.dels = 0, 0
end

-- Two bytes, most of them requested often.
local TWO = {}
local function two(number)
  local bytes = TWO[number]
  if not bytes then
    bytes = string.char(math.floor(number / 256), number % 256)
    TWO[number] = bytes
  end
  return bytes
end

local function lane_field(key)
  return two(#key) .. key
end

-- The parts of c that are stored with other data, and their field names.
local INSIDE = {
  cn = function(name)
    return 'n' .. name
  end,
  l = lane_field,
  lt = function(place)
    return 'm' .. place
  end,
  t = function(token)
    return 't' .. token
  end,
}

local function hash(q, part)
  local h = q.hashes[part]
  if not h then
    local inside = INSIDE[part]
    h = { name = inside and q.c or q[part], inside = inside, values = {}, changed = {} }
    q.hashes[part] = h
    q.used[#q.used + 1] = h
  end
  return h
end

-- False for a field that is not there.
local function get(h, field)
  local value = h.values[field]
  if value == nil then
    value = redis_call('HGET', h.name, h.inside and h.inside(field) or field)
    h.values[field] = value
  end
  return value
end

-- False deletes the field.
local function set(h, field, value)
  h.values[field] = value
  h.changed[#h.changed + 1] = field
end

-- Reads fields that will be needed, with one command.
local function prefetch(h, fields)
  local values, missing = h.values, {}
  for i = 1, #fields do
    local field = fields[i]
    if values[field] == nil then
      values[field] = false
      missing[#missing + 1] = field
    end
  end
  local asked, inside = missing, h.inside
  if inside then
    asked = {}
    for i = 1, #missing do
      asked[i] = inside(missing[i])
    end
  end
  local found = fetch(h.name, asked)
  for i = 1, #missing do
    values[missing[i]] = found[i]
  end
end

-- Adds what was read in another way: this many fields, found after `at`.
local function known(h, fields, found, at, count)
  for i = 1, count do
    h.values[fields[i]] = found[at + i]
  end
end

-- Adds the changes of c to the call's writes.
local function flush_inside(q, h)
  local changed, values, inside = h.changed, h.values, h.inside
  for i = 1, #changed do
    local field = changed[i]
    local value = values[field]
    if value then
      set_field(q, inside(field), value)
    else
      del_field(q, inside(field))
    end
  end
  h.changed = {}
end

local function flush(q, h)
  if h.inside then
    return flush_inside(q, h)
  end
  local changed, values = h.changed, h.values
  if #changed == 0 then
    return
  end
  local written, gone = {}, {}
  for i = 1, #changed do
    local field = changed[i]
    local value = values[field]
    if value then
      written[#written + 1] = field
      written[#written + 1] = value
    else
      gone[#gone + 1] = field
    end
  end
  bulk('HSET', h.name, written)
  bulk('HDEL', h.name, gone)
  h.changed = {}
end
