-- il1_extend: token duration
-- The lease ends so long from now. One write for all its messages, and a repeat does no harm: it takes
-- no call number, so that a heartbeat need not wait for the consumer's other calls.
-- Answers the deadline, or LEASELOST.

register('extend', function(q, from)
  local token = take_number(from, 'token')
  local duration = take_whole(from, 1, MAX_SPAN, 'duration')
  take_end(from)
  begin(q)
  local reply = { 'LEASELOST' }
  if alive(q, token) then
    local lease = lease_of(q, token)
    lease.deadline = digits(q.now + duration)
    keep_lease(q, lease)
    fall_due_at(q, q.now + duration, 'a' .. token)
    reply = { lease.deadline }
  end
  commit(q)
  return reply
end)
