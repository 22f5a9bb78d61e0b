-- il1_next: consumer call wait count duration kind settlement...
-- Settles, then leases, even if some were lost. Answers how many settlements, each one's answer, then as
-- il1_lease does.

register('next', { 'allow-oom' }, function(q, from)
  local consumer, call = take_caller(from)
  local wait = take_wait(from)
  local wanted = take_wanted(from)
  local token, ids, joined = plain_acks(from.args, from.at)
  local list = not token and take_settlements(from)
  local reply = kept_reply(q, from.called, consumer, call)
  if reply then
    return reply
  end
  begin(q)
  q.caller = call > 0 and consumer
  reply = { tostring(#(ids or list)) }
  local quickly = settle_given(q, list, token, ids, joined, reply)
  local short = lease(q, consumer, wait, wanted, reply)
  return answer(q, from.called, consumer, call, reply, short and quickly and short .. #(ids or list))
end)
