-- il1_peek: id
-- Answers for one unsettled message or dead letter: state, token, consumer, deadline, due, blocked, and then the
-- fields of il1_scan. Nothing for any other id.

register('peek', function(q, from)
  local id = take.number(from, 'id')
  take_end(from)
  look(q)
  local m = find(q, id)
  if not m then
    local text = redis_call('HGET', q.x, id)
    local told = { 'dead', '', '', '', '', '0' }
    if not text then
      return {}
    end
    told[5] = description.tell_dead_one(q, id, text, told).due
    return told
  end
  local reply = { description.state_of(q, m), '', '', '', description.due_of(q, m), tostring(m.blocked) }
  if STATES[m.state] == 'leased' then
    local lease = leases.of(q, m.token)
    reply[2], reply[3], reply[4], reply[6] = m.token, lease.consumer, lease.deadline, '0'
  end
  description.tell(q, m, reply)
  return reply
end)
