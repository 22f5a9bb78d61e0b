-- Settling: any subset of what is out, of any leases.

local function take_settlements(from)
  local list = {}
  while more(from) do
    local i = #list + 1
    if i > MAX_BATCH then
      refuse('TOOBIG', '%s: more than %d settlements', from.called, MAX_BATCH)
    end
    local verb = take(from, 'settlements[%d]', i)
    local one = { verb = verb }
    if verb ~= 'ACK' and verb ~= 'DONE' and verb ~= 'NACK' and verb ~= 'REJECT' and verb ~= 'RELEASE' then
      bad(from, 'settlements[%d]', i, 'is not ACK, DONE, NACK, REJECT or RELEASE')
    end
    one.token = take_number(from, 'settlements[%d].token', i)
    one.id = take_number(from, 'settlements[%d].id', i)
    if verb == 'NACK' then
      -- Empty: the backoff of the policy.
      if from.args[from.at + 1] == '' then
        from.at = from.at + 1
      else
        one.delay = take_whole(from, 0, MAX_SPAN, 'settlements[%d].delay', i)
      end
      one.error = take_text(from, MAX_TEXT, 'settlements[%d].error', i)
    elseif verb == 'DONE' then
      one.result = take_text(from, MAX_PAYLOAD, 'settlements[%d].result', i)
    elseif verb == 'REJECT' then
      one.error = take_text(from, MAX_TEXT, 'settlements[%d].reason', i)
    end
    list[i] = one
  end
  return list
end

-- The settlements whose lease still holds the message, in order; what is lost is answered so.
local function held_ones(q, now, list, reply)
  local ids = {}
  for i, one in ipairs(list) do
    ids[i] = one.id
  end
  local holders = fetch(q.t, ids)
  local living, seen, held = {}, {}, {}
  for i, one in ipairs(list) do
    local token = one.token
    if living[token] == nil then
      living[token] = alive(q, now, token) or false
    end
    -- Named twice: the first one settles it.
    if holders[i] == token and living[token] and not seen[one.id] then
      seen[one.id] = true
      one.answer = #reply + i
      held[#held + 1] = one
    end
  end
  for _ = 1, #list do
    reply[#reply + 1] = 'LEASELOST'
  end
  return held
end

local function settle(q, now, list, reply)
  local held = held_ones(q, now, list, reply)
  local ids, ended = {}, {}
  for i, one in ipairs(held) do
    ids[i] = one.id
    ended[one.token] = (ended[one.token] or 0) + 1
  end
  if #ids == 0 then
    return
  end
  bulk('HDEL', q.t, ids)
  for token, count in pairs(ended) do
    end_some(q, token, count)
  end
  local attempts = attempts_of(q, ids)
  local over = {}
  for i, m in ipairs(records(q, ids)) do
    local one, answer = held[i], 'ACKED'
    if one.verb == 'RELEASE' then
      answer = 'RELEASED'
      push_back(q, m)
    elseif one.verb == 'NACK' then
      answer = fail(q, now, m, attempts[i], one.delay, one.error, over) and 'RETRIED' or 'DEAD'
    else
      if one.verb == 'REJECT' then
        answer, m.attempt, m.error = 'DEAD', attempts[i], one.error
      end
      over[#over + 1] = m
    end
    reply[one.answer] = answer
  end
  finish(q, now, over)
end
