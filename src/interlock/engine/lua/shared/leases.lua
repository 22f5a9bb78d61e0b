-- Leases (clause 8). One lease is what one call was handed: one token, one deadline, up to MAX_BATCH
-- messages. t has of each token when it was given, the deadline, how many of its messages are out, the
-- consumer, and the places; due has the deadline as well. A message's record has the token.

local function lease_of(q, token)
  local text = get(hash(q, 't'), token)
  if not text then
    return nil
  end
  local length = tonumber(string.sub(text, 37, 40))
  return {
    token = token, given = string.sub(text, 1, 16), deadline = string.sub(text, 17, 32),
    out = tonumber(string.sub(text, 33, 36)), consumer = string.sub(text, 41, 40 + length), text = text,
  }
end

local function places_of(lease)
  local text, places = lease.text, {}
  for at = 41 + #lease.consumer, #text, 16 do
    places[#places + 1] = string.sub(text, at, at + 15)
  end
  return places
end

local function keep_lease(q, lease)
  local rest = string.sub(lease.text, 37)
  set(hash(q, 't'), lease.token, lease.given .. lease.deadline .. string.format('%04d', lease.out) .. rest)
end

-- False once the deadline is reached, even if what falls due has not come to it yet.
local function alive(q, token)
  local lease = lease_of(q, token)
  return lease and tonumber(lease.deadline) > q.now
end

-- So many of a lease's messages are no longer out.
local function end_some(q, token, count)
  local lease = lease_of(q, token)
  q.counters.leased = q.counters.leased - count
  lease.out = lease.out - count
  if lease.out == 0 then
    set(hash(q, 't'), token, false)
    redis.call('ZREM', q.due, 'a' .. token)
  else
    keep_lease(q, lease)
  end
end

-- When there is something to do that no call from outside causes; '' for never.
local function next_due(q, kind)
  local c = q.counters
  if c.late + c.unfinished + c.opening + c.returning > 0 or c.halted == 0 and ready_count(c, kind) > 0 then
    return '0'
  elseif c.sealed > 0 and c.unsettled == 0 then
    return 'sealed'
  end
  local first = redis.call('ZRANGE', q.due, 0, 0, 'WITHSCORES')[2]
  c.due = first and tonumber(first) or NEVER
  return first or ''
end

local function grant(q, consumer, wanted, reply)
  local c, at = q.counters, #reply
  local taken = take_ready(q, wanted.kind, wanted.count)
  local count = #taken
  if count == 0 then
    forget(q, MAX_DUE)
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = '', '', next_due(q, wanted.kind), '0'
    return false
  end
  local token, deadline = draw(q, 'fence'), digits(q.now + wanted.duration)
  local places = {}
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = token, deadline, '', tostring(count)
  at = at + 4
  for i = 1, count do
    local m = taken[i]
    local exclusive, shared = m.exclusive, m.shared
    places[i] = m.place
    m.state, m.token = 'L', token
    changed(q, m)
    reply[at + 1] = m.id
    reply[at + 2] = m.id == m.place and '' or m.place
    reply[at + 3] = tostring(attempt_of(m))
    reply[at + 4] = payload_of(q, m)
    reply[at + 5] = tostring(#exclusive)
    reply[at + 6] = tostring(#shared)
    at = at + 6
    for k = 1, #exclusive do
      reply[at + k] = exclusive[k]
    end
    at = at + #exclusive
    for k = 1, #shared do
      reply[at + k] = shared[k]
    end
    at = at + #shared
  end
  set(hash(q, 't'), token, string.format('%016.0f%s%04d%04d', q.now, deadline, count, #consumer)
    .. consumer .. table.concat(places))
  fall_due_at(q, q.now + wanted.duration, 'a' .. token)
  c.leased, c.leases = c.leased + count, c.leases + count
  return true
end
