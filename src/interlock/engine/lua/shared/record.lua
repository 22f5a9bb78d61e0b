-- A message as it lies in the hash p, by its id.
--
-- sequence is '' while it is the id itself, which it is but for messages that were delayed. groups
-- holds, for each shared key, the group of readers that the message is in.
local function pack(message)
  return cmsgpack.pack(
    message.payload, message.priority, message.attempts, message.dedup, message.window,
    message.sequence, message.exclusive, message.shared, message.groups)
end

local function unpack_record(id, record)
  local m = { id = id }
  m.payload, m.priority, m.attempts, m.dedup, m.window, m.sequence, m.exclusive, m.shared, m.groups =
    cmsgpack.unpack(record)
  return m
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
