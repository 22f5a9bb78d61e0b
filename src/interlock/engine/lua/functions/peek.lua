-- il1_peek: id
-- One unsettled message: state, attempt, token (of its lease, else ''), blocked (how many nodes it waits
-- for), priority, payload, exclusive, shared, then the keys. Nothing for an id that is not unsettled.

local function state_of(q, id, token, blocked)
  if token then
    return 'leased'
  elseif blocked then
    return 'waiting'
  elseif redis.call('ZSCORE', q.due, 'b' .. id) then
    return 'backing_off'
  elseif redis.call('ZSCORE', q.due, 'd' .. id) then
    return 'delayed'
  end
  return 'ready'
end

register('peek', { 'no-writes' }, function(q, from)
  local id = take_number(from, 'id')
  take_end(from)
  local record = redis.call('HGET', q.p, id)
  if not record then
    return {}
  end
  local m = unpack_record(id, record)
  local token = redis.call('HGET', q.t, id)
  local blocked = redis.call('HGET', q.b, id)
  local reply = {
    state_of(q, id, token, blocked),
    tostring(attempts_of(q, { id })[1]),
    token or '',
    blocked and string.match(blocked, '^%d+') or '0',
    tostring(m.priority),
    m.payload,
    tostring(#m.exclusive),
    tostring(#m.shared),
  }
  for _, list in ipairs({ m.exclusive, m.shared }) do
    for _, key in ipairs(list) do
      reply[#reply + 1] = key
    end
  end
  return reply
end)
