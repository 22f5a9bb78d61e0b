-- A message as it lies in the hash p, by its id.
--
-- sequence is '' while it is the id itself, which it is but for messages that were delayed. groups
-- holds, for each shared key, the group of readers that the message is in. Most messages have no shared
-- keys and no options: what comes last is left out where it says nothing.
local function pack(m)
  if m.priority ~= 0 or m.attempts ~= DEFAULT_ATTEMPTS or m.dedup ~= '' or m.sequence ~= '' then
    return cmsgpack.pack(m.payload, m.exclusive, m.shared, m.groups,
      m.priority, m.attempts, m.dedup, m.window, m.sequence)
  elseif #m.shared > 0 then
    return cmsgpack.pack(m.payload, m.exclusive, m.shared, m.groups)
  end
  return cmsgpack.pack(m.payload, m.exclusive)
end

local function unpack_record(id, record)
  local payload, exclusive, shared, groups, priority, attempts, dedup, window, sequence =
    cmsgpack.unpack(record)
  return {
    id = id, payload = payload, exclusive = exclusive, shared = shared or {}, groups = groups or {},
    priority = priority or 0, attempts = attempts or DEFAULT_ATTEMPTS,
    dedup = dedup or '', window = window or DEFAULT_WINDOW, sequence = sequence or '',
  }
end

local function records(q, ids)
  local found = fetch(q.p, ids)
  local messages = {}
  for i = 1, #ids do
    messages[i] = unpack_record(ids[i], found[i])
  end
  return messages
end

local function keyed(message)
  return #message.exclusive + #message.shared > 0
end
