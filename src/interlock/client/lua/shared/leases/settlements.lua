-- Settling: any subset of the leased messages, of any leases.

local take_text, take_whole, take_number, take_word = take.text, take.whole, take.number, take.word
local look_behind = lanes.look_behind
local keep_result = results.keep
local settle, give_up, come_again, fail = outcome.settle, outcome.give_up, outcome.come_again, outcome.fail
local alive, end_some = leases.alive, leases.end_some

local VERBS = { ACK = true, DONE = true, NACK = true, REJECT = true, EXHAUST = true, RELEASE = true, DEFER = true,
  DROP = true, CLOSE = true, told = 'ACK, DONE, NACK, REJECT, EXHAUST, RELEASE, DEFER, DROP or CLOSE' }

-- A retry or a deferral, with a limit name that is closed as long.
local function take_closing(from, i, one)
  one.delay = take_whole(from, 0, MAX_SPAN, 'settlements[%d].delay', i)
  one.text = take_text(from, MAX_ERROR, 'settlements[%d].error', i)
  one.name = take_text(from, MAX_TEXT, 'settlements[%d].name', i)
  if one.name == '' then
    bad(from, 'settlements[%d].name', i, 'is empty')
  elseif string_find(one.name, '\31', 1, true) then
    bad(from, 'settlements[%d].name', i, 'has the byte 0x1F')
  end
  one.counts = take_whole(from, 0, 1, 'settlements[%d].counts', i) == 1
end

local function take_settlements(from)
  local list, last = {}, nil
  while more(from) do
    local i = #list + 1
    if i > MAX_BATCH then
      refuse('TOOBIG', '%s: more than %d settlements', from.called, MAX_BATCH)
    end
    local verb = take_word(from, VERBS, 'settlements[%d]', i)
    local args, at = from.args, from.at
    local token, id = args[at + 1], args[at + 2]
    if token == last and token and id and #id == 16 and string_find(id, '^[1-9]%d*$') then
      from.at = at + 2
    else
      token = take_number(from, 'settlements[%d].token', i)
      id = take_number(from, 'settlements[%d].id', i)
      last = token
    end
    local one = { verb = verb, token = token, id = id, text = false, answer = false, payload = false }
    if verb == 'NACK' then
      -- Empty: the backoff of the policy.
      if from.args[from.at + 1] == '' then
        from.at = from.at + 1
      else
        one.delay = take_whole(from, 0, MAX_SPAN, 'settlements[%d].delay', i)
      end
      one.text = take_text(from, MAX_ERROR, 'settlements[%d].error', i)
    elseif verb == 'DONE' then
      one.text = take_text(from, MAX_PAYLOAD, 'settlements[%d].result', i)
    elseif verb == 'REJECT' or verb == 'DROP' then
      one.text = take_text(from, MAX_ERROR, 'settlements[%d].reason', i)
    elseif verb == 'EXHAUST' then
      one.text = take_text(from, MAX_ERROR, 'settlements[%d].error', i)
    elseif verb == 'DEFER' then
      one.delay = take_whole(from, 0, MAX_SPAN, 'settlements[%d].delay', i)
    elseif verb == 'CLOSE' then
      take_closing(from, i, one)
    end
    list[i] = one
  end
  return list
end

-- The settlements whose lease still holds the message, or will once the messages before it in its run are settled; in order.
local function held_ones(q, list)
  local ids, tokens = {}, {}
  for i = 1, #list do
    ids[i], tokens[i] = list[i].id, list[i].token
  end
  local found = find_all(q, ids)
  prefetch(hash(q, 't'), tokens)
  local living, held, messages = {}, {}, {}
  for i = 1, #list do
    local one, m, token = list[i], found[i], tokens[i]
    if m and (m.state == 'L' or m.state == 'Y') and m.token == token and not m.settling then
      if living[token] == nil then
        living[token] = alive(q, token) or false
      end
      if living[token] then
        -- Named twice: the first one settles it. A rider may have the lease by the second.
        m.settling, one.rides = m.state == 'L', m.state == 'Y'
        held[#held + 1] = one
        messages[#messages + 1] = m
      end
    elseif m and m.extras and m.extras.ALONE == token then
      -- A caller that settles with an expired lease is alive: the message did not end it.
      unsuspect(m)
      changed(q, m)
    end
  end
  return held, messages
end

-- Answers also how many riders wait again.
local function settle_one(q, one, m)
  local c, verb, parted = q.counters, one.verb, 0
  if verb == 'CLOSE' then
    slots.close(q, one.name, q.now + one.delay)
    verb = one.counts and 'NACK' or 'DEFER'
  end
  if verb ~= 'ACK' and verb ~= 'DONE' and verb ~= 'DROP' then
    parted = runs.part(q, runs.riders(q, m))
  end
  if verb == 'ACK' or verb == 'DONE' then
    c[N.acks] = c[N.acks] + 1
    if q.watched then
      events.happened(q, 'ack', m, m.token)
    end
    if m.extras then
      keep_result(q, m, 'd', one.text or '')
    end
    settle(q, m)
    return 'ACKED', 0
  elseif verb == 'NACK' then
    if m.extras and m.extras.ALONE then
      -- Its handler ended by itself.
      unsuspect(m)
    end
    return fail(q, m, one.delay, one.text), parted
  elseif verb == 'REJECT' then
    return give_up(q, m, one.text, false), parted
  elseif verb == 'EXHAUST' then
    return give_up(q, m, one.text, option(q, 'THEN', m) == 'hold'), parted
  elseif verb == 'DROP' then
    c[N.messages_expired] = c[N.messages_expired] + 1
    if q.watched then
      events.happened(q, 'message_expired', m, m.token, one.text)
    end
    keep_result(q, m, 'e', one.text)
    settle(q, m)
    return 'DROPPED', 0
  end
  c[N.releases] = c[N.releases] + 1
  if q.watched then
    events.happened(q, verb == 'DEFER' and 'defer' or 'release', m, m.token)
  end
  come_again(q, m, one.delay or 0)
  return 'RELEASED', parted
end

local function settle_all(q, list, reply)
  local at = #reply
  for i = 1, #list do
    -- Unless it is found otherwise.
    list[i].answer, reply[at + i] = at + i, 'LEASELOST'
  end
  local held, messages = held_ones(q, settle_plain(q, list, reply))
  if #held == 0 then
    return
  end
  local ended, riders_ended = {}, {}
  for i = 1, #held do
    local token = held[i].token
    if not held[i].rides then
      ended[token] = (ended[token] or 0) + 1
    end
  end
  for token, count in pairs(ended) do
    end_some(q, token, count)
  end
  look_behind(q, messages)
  if q.turns then
    turns.look_at(q, messages)
  end
  if q.slots then
    slots.look_at(q, messages)
  end
  if q.counters[N.coalescing] > 0 then
    coalescing.look_at(q, messages)
  end
  for i = 1, #held do
    local one, m, count = held[i], messages[i], nil
    m.settling = nil
    -- A rider that has not got the lease by now is not settled.
    if not one.rides or m.state == 'L' and m.token == one.token and not m.gone then
      reply[one.answer], count = settle_one(q, one, m)
      behind.move(q)
      count = one.rides and count + 1 or count
      if count > 0 then
        riders_ended[one.token] = (riders_ended[one.token] or 0) + count
      end
    end
  end
  for token, count in pairs(riders_ended) do
    end_some(q, token, count)
  end
end
