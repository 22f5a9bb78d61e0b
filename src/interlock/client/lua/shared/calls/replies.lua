-- Repeated calls (clause 8): the last reply to each consumer is kept in the field k CONSUMER, so
-- that a call repeated after a lost reply gets the same answer and does nothing. The field has the
-- call's number, the time, its function, and the reply in one of the forms of forms.lua.
--
-- It is valid for five minutes. An expiry of its own would cost a command per call, so consumers
-- with a kept reply are in the sorted set ko; the counter kept_due says when one of them may have
-- been silent that long, and only then they are examined.

local short_of, reply_of = forms.short_of, forms.reply_of

-- Reads all that the call needs first: counters, the consumer's kept reply, and `fields` of c up to
-- the `last`, which begin with the third; their values are in q.kept. Answers the reply, if this
-- call was answered before.
local function kept_reply(q, from, consumer, call, fields, last)
  local field, found = 'k' .. consumer, nil
  if fields then
    fields[1], fields[2] = 'c', field
    found = redis_call('HMGET', q.c, table_unpack(fields, 1, last))
  else
    found = redis_call('HMGET', q.c, 'c', field)
  end
  local now, stamp = now_of(q)
  -- A queue that was dropped a moment ago does not exist, and its replies are stored elsewhere.
  local kept = found[2] or not found[1] and redis_call('HGET', q.series, field)
  q.now, q.stamp = now, stamp or digits(now)
  q.caller, q.ahead, q.kept = false, found[1] or '', found
  if call == 0 or not kept then
    return nil
  end
  local space = string_find(kept, ' ', 1, true)
  local before = to_number(string_sub(kept, 1, space - 1))
  if call > before or to_number(string_sub(kept, space + 1, space + 16)) + KEPT_REPLY <= now then
    return nil
  end
  local called, of = from.called, string_match(kept, '^%S+', space + 17)
  if call < before then
    refuse('STALECALL', '%s: call %s comes after call %s', called, digits(call), digits(before))
  end
  if of ~= called then
    refuse('STALECALL', '%s: call %s was %s', called, digits(call), of)
  end
  return reply_of(q, kept, consumer)
end

-- Ends the call. `short` is the reply in a shorter form.
local function answer(q, from, consumer, call, reply, short)
  if call == 0 then
    commit(q)
    return reply
  end
  -- The second argument, as it came, is the number.
  local head = from.args[2] .. ' ' .. q.stamp .. from.called .. ' '
  -- The kept reply may just have been forgotten.
  if not q.kept[2] or q.forgot then
    redis_call('ZADD', q.ko, q.stamp, consumer)
    q.counters[N.kept_due] = math.min(q.counters[N.kept_due], q.now + KEPT_REPLY)
  end
  commit(q, 'k' .. consumer, short and head .. short or short_of(q, consumer, head, reply))
  return reply
end
