-- il1_next: consumer call wait count duration kind settlement...
-- Settles, then leases, even if some were lost. Answers how many settlements, each one's answer, then as
-- il1_lease does.

local take_caller, take_wait = take.caller, take.wait
local COUNT = forms.COUNT
local ASKED, plain_acks, settle_given = quick.ASKED, quick.plain_acks, quick.settle_given

register('next', function(q, from)
  local consumer, call = take_caller(from)
  local wait = take_wait(from)
  local wanted = take_wanted(from)
  local token, count, joined = plain_acks(from.args, from.at)
  local list = not token and take_settlements(from)
  local reply = kept_reply(q, from, consumer, call, token and ASKED, token and count + 3)
  if reply then
    return reply
  end
  begin(q)
  q.caller = call > 0 and consumer
  count = count or #list
  reply = { COUNT[count] or tostring(count) }
  local quickly = settle_given(q, list, token, count, joined, reply)
  local short = lease(q, consumer, wait, wanted, reply)
  return answer(q, from, consumer, call, reply, short and quickly and short .. count)
end)
