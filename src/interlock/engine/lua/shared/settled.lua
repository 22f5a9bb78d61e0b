-- The end of messages: acknowledged, or dead letters.

-- What is settled is known by its dedup string until the window ends (clause 13).
local function forget_later(q, now, message)
  if message.dedup == '' then
    return
  end
  if message.window == 0 then
    redis.call('HDEL', q.u, message.dedup)
  else
    redis.call('ZADD', q.uw, digits(now + message.window), message.dedup)
  end
end

local function forget_known(q, now)
  local over = redis.call('ZRANGEBYSCORE', q.uw, '-inf', digits(now), 'LIMIT', 0, MAX_DUE)
  bulk('HDEL', q.u, over)
  bulk('ZREM', q.uw, over)
end

-- A message that has `error` becomes a dead letter; `attempt` is the one it died at.
local function finish(q, now, messages)
  if #messages == 0 then
    return
  end
  local ids = {}
  for i, m in ipairs(messages) do
    ids[i] = m.id
    if m.error then
      redis.call('HSET', q.x, m.id, cmsgpack.pack(pack(m), m.attempt, m.error, digits(now)))
      -- Numbered as they die, for many die at one time.
      redis.call('ZADD', q.xo, redis.call('HINCRBY', q.c, 'died', 1), m.id)
    end
    forget_later(q, now, m)
  end
  bulk('HDEL', q.p, ids)
  bulk('HDEL', q.a, ids)
  unlink(q, messages)
end

-- The pause after the n-th attempt failed, µs. Jitter is a hash of id and n: a schedule must replay.
local function backoff(id, n)
  local all = DEFAULT_FIRST
  for _ = 2, math.min(n, 1001) do
    if all >= DEFAULT_LONGEST then
      break
    end
    all = all * (DEFAULT_FACTOR / 1000)
  end
  all = math.floor(math.min(all, DEFAULT_LONGEST))
  local half = math.floor(all / 2)
  local part = ((tonumber(id) % 16777213) * 40503 + n * 9973) % 65536 / 65536
  return half + math.floor((all - half) * part)
end

-- A message whose attempt failed: again in its place, at once or after a delay, or dead. Those that
-- died go to `over`, to be finished together.
local function fail(q, now, message, attempt, delay, text, over)
  if message.attempts > 0 and attempt >= message.attempts then
    message.attempt, message.error = attempt, text
    over[#over + 1] = message
    return false
  end
  redis.call('HSET', q.a, message.id, attempt + 1)
  delay = delay or backoff(message.id, attempt)
  if delay > 0 then
    redis.call('ZADD', q.due, digits(now + delay), 'b' .. message.id)
    redis.call('HINCRBY', q.c, 'backing_off', 1)
  else
    push_back(q, message)
  end
  return true
end

local function attempts_of(q, ids)
  local found = fetch(q.a, ids)
  for i = 1, #ids do
    found[i] = tonumber(found[i] or 1)
  end
  return found
end
