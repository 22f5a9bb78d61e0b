-- il1_settle: consumer call settlement...
--   settlement: ACK token id | DONE token id result | NACK token id delay error
--     | REJECT token id reason | EXHAUST token id error | RELEASE token id | DEFER token id delay
--     | DROP token id reason
-- Answers for each ACKED, RETRIED, DEAD, HELD, RELEASED or LEASELOST.

local take_caller = take.caller
local ASKED, plain_acks, settle_given = quick.ASKED, quick.plain_acks, quick.settle_given

register('settle', function(q, from)
  local consumer, call = take_caller(from)
  local token, count, joined = plain_acks(from.args, from.at)
  local list = not token and take_settlements(from)
  if list and #list == 0 then
    bad(from, 'settlements', 0, 'are missing')
  end
  local reply = kept_reply(q, from, consumer, call, token and ASKED, token and count + 3)
  if reply then
    return reply
  end
  begin(q)
  q.caller, reply = call > 0 and consumer, {}
  settle_given(q, list, token, count, joined, reply)
  return answer(q, from, consumer, call, reply)
end)
