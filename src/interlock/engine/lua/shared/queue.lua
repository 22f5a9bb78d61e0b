-- The names of a queue's keys. All begin with its name in braces, so that a cluster keeps them on one
-- node. A name is put together when it is first asked for: q.tail is il:{name}:tail.
local NAMES = {
  __index = function(q, part)
    local name = q[1] .. ':' .. part
    q[part] = name
    return name
  end,
}

local function queue_of(called, keys)
  local name = keys[1]
  if #keys ~= 1 or not string.find(name, '^il:{[^{}]+}$') then
    refuse('BADARG', '%s: takes one key, il:{name}, without other braces', called)
  end
  return setmetatable({ name }, NAMES)
end

-- The next numbers of a series: the larger of the last one plus 1 and the time, so that none comes
-- again even when a failover lost the last ones (clause 8). Answers the first.
local function draw(q, series, now, count)
  local first = math.max((redis.call('HGET', q.c, series) or 0) + 1, now)
  redis.call('HSET', q.c, series, digits(first + count - 1))
  return first
end

-- When there is something to do that no call from outside causes; '' for never.
local function next_due(q)
  return redis.call('ZRANGE', q.due, 0, 0, 'WITHSCORES')[2] or ''
end
