-- il1_extend: token duration
-- The lease ends so long from now. One write for all its messages, and a repeat does no harm: it takes
-- no call number, so that a heartbeat need not wait for the consumer's other calls.
-- Answers the deadline, or LEASELOST.

register('extend', { 'allow-oom' }, function(q, from)
  local token = take_number(from, 'token')
  local duration = take_whole(from, 1, MAX_SPAN, 'duration')
  take_end(from)
  local now = now_of(q)
  apply_due(q, now)
  if not alive(q, now, token) then
    return { 'LEASELOST' }
  end
  local deadline = digits(now + duration)
  redis.call('ZADD', q.due, deadline, 'a' .. token)
  return { deadline }
end)
