-- Handing out: the lease that a call gets, and what it is told.

-- In how many µs there is something to do that no call from outside causes; '' for never.
local function next_due(q, kind)
  local c = q.counters
  local left = c[N.late] + c[N.unfinished] + c[N.opening] + c[N.returning]
  if left > 0 or c[N.halted] == 0 and ready_count(c, kind) > 0 then
    return '0'
  elseif c[N.sealed] > 0 and c[N.unsettled] == 0 then
    return 'sealed'
  end
  local first = redis.call('ZRANGE', q.due, 0, 0, 'WITHSCORES')[2]
  c[N.due] = first and tonumber(first) or NEVER
  -- A duration, for who asks does not know this clock.
  return first and digits(math.max(0, tonumber(first) - q.now)) or ''
end

-- Hands a message out: its part of the reply behind `at`. Answers where that ends.
local function lease_one(q, m, token, reply, at)
  local exclusive, shared = m.exclusive, m.shared
  m.state, m.token = 'L', token
  changed(q, m)
  reply[at + 1] = m.id
  reply[at + 2] = m.id == m.place and '' or m.place
  reply[at + 3] = tostring(attempt_of(m))
  reply[at + 4] = payload_of(q, m)
  reply[at + 5], reply[at + 6] = tostring(#exclusive), tostring(#shared)
  at = at + 6
  for k = 1, #exclusive do
    reply[at + k] = exclusive[k]
  end
  at = at + #exclusive
  for k = 1, #shared do
    reply[at + k] = shared[k]
  end
  return at + #shared
end

local function grant(q, consumer, wanted, reply)
  local c, at = q.counters, #reply
  local taken, places = take_ready(q, wanted.kind, wanted.count)
  local count = #taken
  if count == 0 then
    forget(q, MAX_DUE)
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = '', '', next_due(q, wanted.kind), '0'
    return false
  end
  local token, deadline = draw(q, N.fence), digits(q.now + wanted.duration)
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = token, deadline, '', tostring(count)
  at = at + 4
  for i = 1, count do
    local m = taken[i]
    if type(m) == 'string' then
      at = lease_plain(q, places[i], m, token, reply, at)
    else
      at = lease_one(q, m, token, reply, at)
    end
  end
  set(hash(q, 't'), token, string.format('%d%s%04d%04d', q.now, deadline, count, #consumer)
    .. consumer .. table.concat(places))
  fall_due_at(q, q.now + wanted.duration, 'a' .. token)
  c[N.leased], c[N.leases] = c[N.leased] + count, c[N.leases] + count
  return true
end
