-- Leases (clause 8). One lease is what one call was handed: one token, one deadline, up to MAX_BATCH
-- messages. t has the token of each message that is out, lb of each token its messages and consumer,
-- lc how many of them are out. The deadline is among what is due.

local function grant(q, now, consumer, count, duration, kind, reply)
  local ids, from_keyed = first_ready(q, kind, count)
  if #ids == 0 then
    forget_known(q, now)
    for _, value in ipairs({ '', '', next_due(q), '0' }) do
      reply[#reply + 1] = value
    end
    return
  end
  local messages = records(q, ids)
  local keys, taken = 0, 0
  for i, m in ipairs(messages) do
    keys = keys + #m.exclusive + #m.shared
    -- One message may have more keys than are left, or it could never be handed out.
    if keys > MAX_BATCH_KEYS and i > 1 then
      break
    end
    taken = i
  end
  for i = #ids, taken + 1, -1 do
    ids[i] = nil
  end
  drop_first(q, from_keyed, taken)
  local token = digits(draw(q, 'fence', now, 1))
  local deadline = digits(now + duration)
  local attempts = attempts_of(q, ids)
  local out = {}
  for _, id in ipairs(ids) do
    out[#out + 1] = id
    out[#out + 1] = token
  end
  bulk('HSET', q.t, out)
  redis.call('HSET', q.lb, token, string.format('%04d', taken) .. table.concat(ids) .. consumer)
  redis.call('HSET', q.lc, token, taken)
  redis.call('ZADD', q.due, deadline, 'a' .. token)
  for _, value in ipairs({ token, deadline, '', tostring(taken) }) do
    reply[#reply + 1] = value
  end
  for i = 1, taken do
    local m = messages[i]
    local at = #reply
    reply[at + 1] = m.id
    reply[at + 2] = m.sequence
    reply[at + 3] = tostring(attempts[i])
    reply[at + 4] = m.payload
    reply[at + 5] = tostring(#m.exclusive)
    reply[at + 6] = tostring(#m.shared)
    for _, key in ipairs(m.exclusive) do
      reply[#reply + 1] = key
    end
    for _, key in ipairs(m.shared) do
      reply[#reply + 1] = key
    end
  end
end

-- False once the deadline is reached, even if what falls due has not come to it yet.
local function alive(q, now, token)
  local deadline = redis.call('ZSCORE', q.due, 'a' .. token)
  return deadline and tonumber(deadline) > now
end

-- So many of a lease's messages are no longer out.
local function end_some(q, token, count)
  if redis.call('HINCRBY', q.lc, token, -count) == 0 then
    redis.call('HDEL', q.lc, token)
    redis.call('HDEL', q.lb, token)
    redis.call('ZREM', q.due, 'a' .. token)
  end
end

-- Takes back what leases that ran out still hold, at most so many messages; answers how many are left
-- of that. The rest of a lease stays listed, for the next call.
local function expire(q, now, tokens, left)
  local over = {}
  for _, token in ipairs(tokens) do
    if left <= 0 then
      break
    end
    local lease = redis.call('HGET', q.lb, token)
    local count = tonumber(string.sub(lease, 1, 4))
    local now_taken = math.min(count, left)
    left = left - now_taken
    local ids, held = {}, {}
    for i = 1, now_taken do
      ids[i] = string.sub(lease, 16 * i - 11, 16 * i + 4)
    end
    for i, holder in ipairs(fetch(q.t, ids)) do
      if holder == token then
        held[#held + 1] = ids[i]
      end
    end
    if now_taken < count then
      local rest = string.format('%04d', count - now_taken) .. string.sub(lease, 16 * now_taken + 5)
      redis.call('HSET', q.lb, token, rest)
    end
    bulk('HDEL', q.t, held)
    local attempts = attempts_of(q, held)
    for i, m in ipairs(records(q, held)) do
      fail(q, now, m, attempts[i], nil, 'lease expired', over)
    end
    end_some(q, token, #held)
  end
  finish(q, now, over)
  return left
end
