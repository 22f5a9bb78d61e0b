-- Repeating a call (clause 8): of each consumer its last reply is kept under k:consumer, so that a call
-- sent again after a lost reply is answered as the first time and does nothing.
--
-- It expires by the server's clock, for a consumer that is gone says nothing.
local function kept_reply(q, called, consumer, call)
  if call == 0 then
    return nil
  end
  local kept = redis.call('GET', name_of(q, 'k:' .. consumer))
  if not kept then
    return nil
  end
  local last, of, reply = cmsgpack.unpack(kept)
  if call > last then
    return nil
  end
  if call < last then
    refuse('STALECALL', '%s: call %s comes after call %s', called, digits(call), digits(last))
  end
  if of ~= called then
    refuse('STALECALL', '%s: call %s was %s', called, digits(call), of)
  end
  return reply
end

-- Ends the call.
local function answer(q, called, consumer, call, reply)
  commit(q)
  if call > 0 then
    local kept = cmsgpack.pack(call, called, reply)
    redis.call('SET', name_of(q, 'k:' .. consumer), kept, 'PX', KEPT_REPLY_MS)
  end
  return reply
end
