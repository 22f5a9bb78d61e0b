-- il1_next: consumer call wait count duration kind settlement...
-- Settles, then leases, even if some were lost. Answers how many settlements, each one's answer, then as
-- il1_lease does.

register('next', { 'allow-oom' }, function(q, from)
  local consumer, call = take_caller(from)
  take_wait(from)
  local count, duration, kind = take_lease(from)
  local list = take_settlements(from)
  local reply = kept_reply(q, from.called, consumer, call)
  if reply then
    return reply
  end
  reply = { tostring(#list) }
  local now = now_of(q)
  apply_due(q, now)
  settle(q, now, list, reply)
  grant(q, now, consumer, count, duration, kind, reply)
  return keep_reply(q, from.called, consumer, call, reply)
end)
