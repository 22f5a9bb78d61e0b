-- il1_peek: id
-- One unsettled message: state, token, consumer, deadline, due, blocked, then as il1_scan tells it.
-- Nothing for an id that is not unsettled.

register('peek', { 'no-writes' }, function(q, from)
  local id = take_number(from, 'id')
  take_end(from)
  look(q)
  local m = find(q, id)
  if not m then
    return {}
  end
  local reply = { state_of(q, m), '', '', '', due_of(q, m), tostring(m.blocked) }
  if m.state == 'L' then
    local lease = lease_of(q, m.token)
    reply[2], reply[3], reply[4] = m.token, lease.consumer, lease.deadline
  end
  tell(q, m, reply)
  return reply
end)
