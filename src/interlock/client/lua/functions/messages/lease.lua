-- il1_lease: consumer call wait count duration kind
-- Answers token, deadline, next, count, then each message.

local take_caller, take_wait = take.caller, take.wait

register('lease', function(q, from)
  local consumer, call = take_caller(from)
  local wait = take_wait(from)
  local wanted = take_wanted(from)
  take_end(from)
  local reply = kept_reply(q, from, consumer, call)
  if reply then
    return reply
  end
  reply = {}
  begin(q)
  q.caller = call > 0 and consumer
  local short = lease(q, consumer, wait, wanted, reply)
  return answer(q, from, consumer, call, reply, short and short .. '-1')
end)
