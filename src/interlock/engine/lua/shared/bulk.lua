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
