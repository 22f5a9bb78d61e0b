-- Repeating a call (clause 8): of each consumer its last reply is kept under k:consumer, so that a call
-- sent again after a lost reply is answered as the first time and does nothing. Kept are the call's number,
-- its function, and the reply in one of the forms of forms.lua.
--
-- It expires by the server's clock, for a consumer that is gone says nothing.

local function kept_reply(q, called, consumer, call)
  q.caller = false
  if call == 0 then
    return nil
  end
  -- And the counters, which are asked for next.
  local found = redis.call('MGET', q[1] .. ':k:' .. consumer, q.c)
  local kept = found[1]
  q.ahead = found[2] or ''
  if not kept then
    return nil
  end
  local space = string.find(kept, ' ', 1, true)
  local last = tonumber(string.sub(kept, 1, space - 1))
  if call > last then
    return nil
  end
  local of = string.match(kept, '^%S+', space + 1)
  if call < last then
    refuse('STALECALL', '%s: call %s comes after call %s', called, digits(call), digits(last))
  end
  if of ~= called then
    refuse('STALECALL', '%s: call %s was %s', called, digits(call), of)
  end
  return reply_of(q, kept)
end

-- Ends the call. `short` is the reply in a shorter form.
local function answer(q, called, consumer, call, reply, short)
  commit(q)
  if call > 0 then
    local kept = digits(call) .. ' ' .. called .. ' ' .. (short or 'r' .. cmsgpack.pack(reply))
    redis.call('SET', q[1] .. ':k:' .. consumer, kept, 'PX', KEPT_REPLY_MS)
  end
  return reply
end
