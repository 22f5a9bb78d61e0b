-- il1_next: consumer call wait count duration kind settlement...
-- Settles, then leases, even if some were lost. Answers how many settlements, each one's answer, then as
-- il1_lease does.

register('next', { 'allow-oom' }, function(q, from)
  local consumer, call = take_caller(from)
  local wait = take_wait(from)
  local wanted = take_wanted(from)
  local list = take_settlements(from)
  local reply = kept_reply(q, from.called, consumer, call)
  if reply then
    return reply
  end
  reply = { tostring(#list) }
  begin(q)
  settle_all(q, list, reply)
  lease(q, consumer, wait, wanted, reply)
  return answer(q, from.called, consumer, call, reply)
end)
