-- Hashes of which a call sees its own changes: a field is read once, and what was changed is written
-- once, at the end of the call. So a call that is refused has written nothing.

-- One command for many fields. Lua's stack takes 8,000 values; the number is even, for pairs.
local CHUNK = 4000

local function bulk(command, key, list)
  local count = #list
  if count == 0 then
    return
  end
  if count <= CHUNK then
    redis.call(command, key, unpack(list))
    return
  end
  for first = 1, count, CHUNK do
    redis.call(command, key, unpack(list, first, math.min(first + CHUNK - 1, count)))
  end
end

-- The values of many fields of a hash, false for each that is not there.
local function fetch(key, fields)
  local count = #fields
  if count == 0 then
    return {}
  end
  if count <= CHUNK then
    return redis.call('HMGET', key, unpack(fields))
  end
  local all = {}
  for first = 1, count, CHUNK do
    local part = redis.call('HMGET', key, unpack(fields, first, math.min(first + CHUNK - 1, count)))
    for i = 1, #part do
      all[#all + 1] = part[i]
    end
  end
  return all
end

-- Whether a call has neither read nor changed anything in what is written at its end, as most have not.
local function untouched(q)
  return #q.used == 0 and #q.changed == 0 and #q.written == 0 and next(q.messages) == nil
end

local function hash(q, part)
  local h = q.hashes[part]
  if not h then
    h = { name = q[part], values = {}, changed = {} }
    q.hashes[part] = h
    q.used[#q.used + 1] = h
  end
  return h
end

-- False for a field that is not there.
local function get(h, field)
  local value = h.values[field]
  if value == nil then
    value = redis.call('HGET', h.name, field)
    h.values[field] = value
  end
  return value
end

-- False takes the field out.
local function set(h, field, value)
  h.values[field] = value
  h.changed[#h.changed + 1] = field
end

-- Reads fields that will be asked for, with one command.
local function prefetch(h, fields)
  local values, missing = h.values, {}
  for i = 1, #fields do
    local field = fields[i]
    if values[field] == nil then
      values[field] = false
      missing[#missing + 1] = field
    end
  end
  local found = fetch(h.name, missing)
  for i = 1, #missing do
    values[missing[i]] = found[i]
  end
end

-- What was read in another way, for those who ask in this one.
local function known(h, fields, found)
  for i = 1, #fields do
    h.values[fields[i]] = found[i]
  end
end

local function flush(h)
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
