-- il1_put: consumer call wait message...
--   message: payload exclusive shared options, then the number of keys, the keys, and pairs of name
--   and value
-- Answers for each message its id, and 1 if its dedup string was known, 2 if its payload replaced that of
-- an earlier message.
-- No allow-oom: a full server takes nothing new.

local take_text, take_whole, take_caller, take_wait = take.text, take.whole, take.caller, take.wait
local take_keys = take.keys
local look_at_lanes = lanes.look_at
local known_id = dedup.known_id
local put_reply = forms.put_reply
local plain_arguments, fields_ahead = quick.plain_arguments, quick.fields_ahead
local put_quickly = quick.put_quickly

local OWN = {}
for i = 1, #DECLARED.message do
  OWN[DECLARED.message[i].name] = DECLARED.message[i]
end

-- Options that are not kept as they were named.
local FIELDS_OF = { DELAY = 'delay', COALESCE = 'coalesce', DEBOUNCE = 'debounce', WITHIN = 'within' }

local function take_own(from, i, m, given)
  local name = take.argument(from, 'messages[%d].options', i)
  local own, value = OWN[name], nil
  if given[name] then
    bad(from, 'messages[%d].options', i, 'name ' .. name .. ' twice')
  elseif own and own.bytes then
    value = take_text(from, own.bytes, 'messages[%d].' .. name, i)
    if value == '' then
      bad(from, 'messages[%d].' .. name, i, 'is empty')
    end
  elseif own then
    value = take_option(from, own, 'messages[%d].' .. name, i)
  else
    bad(from, 'messages[%d].options', i, 'holds a name that is not ' .. DECLARED.message.told)
  end
  given[name] = true
  from.names = from.names or name == 'DEDUP'
  if FIELDS_OF[name] then
    m[FIELDS_OF[name]] = value
  elseif name == 'BARRIER' then
    m.barrier = value == 1
  elseif name == 'AFTER' then
    -- A condition of the put, which is not kept.
    from.after = from.after or {}
    from.after[#from.after + 1] = value
  elseif name == 'LIMIT' then
    m.limit = limit_names.sort(from, value, 'messages[%d].LIMIT', i)
  elseif name == 'RUN' then
    m.extras = m.extras or {}
    m.extras.RUN = limit_names.check_run(from, value, 'messages[%d].RUN', i)
  elseif name == 'GROUP' then
    m.group = limit_names.check_group(from, value, 'messages[%d].GROUP', i)
  elseif value ~= own.default then
    m.extras = m.extras or {}
    m.extras[name] = value
  end
end

-- Which of the options of coalescing has no place beside the others, and why.
local function wrong_beside(from, m)
  local extras = m.extras or NONE
  if m.coalesce and m.barrier then
    return 'COALESCE', 'with BARRIER'
  elseif m.coalesce and extras.DEDUP then
    return 'COALESCE', 'with DEDUP'
  elseif m.debounce and not m.coalesce then
    return 'DEBOUNCE', 'without COALESCE'
  elseif m.debounce and m.delay > 0 then
    return 'DEBOUNCE', 'with DELAY'
  elseif m.within and not m.debounce then
    return 'WITHIN', 'without DEBOUNCE'
  elseif extras.REVISION and not from.restores then
    return 'REVISION', string_format('is only for il%s_restore', ABOUT.wire)
  elseif extras.REVISION and not m.coalesce then
    return 'REVISION', 'without COALESCE'
  end
end

-- A coalescing name is an exclusive key, in front of the others.
local function put_in_front(m)
  local name, exclusive, shared = m.coalesce, { m.coalesce }, {}
  for k = 1, #m.exclusive do
    if m.exclusive[k] ~= name then
      exclusive[#exclusive + 1] = m.exclusive[k]
    end
  end
  for k = 1, #m.shared do
    if m.shared[k] ~= name then
      shared[#shared + 1] = m.shared[k]
    end
  end
  m.exclusive, m.shared = exclusive, shared
  m.extras = m.extras or {}
  m.extras.COALESCE = 1
end

-- A few keys without anything wrong about them, each named once; nil if it is not as simple as that.
local function few_keys(args, at, count)
  local keys = {}
  for k = 1, count do
    local key = args[at + k]
    if not key or key == '' or #key > MAX_KEY_BYTES then
      return nil
    end
    for j = 1, k - 1 do
      if keys[j] == key then
        return nil
      end
    end
    keys[k] = key
  end
  return keys
end

local function too_many_keys(from, i, count)
  bad(from, 'messages[%d]', i, string_format('has %d keys; at most %d', count, MAX_KEYS))
end

local function take_message(from, i)
  local args, at = from.args, from.at
  local given, count, key = args[at + 1], args[at + 2], args[at + 5]
  if args[at + 3] == '0' and args[at + 4] == '0' and #given <= MAX_PAYLOAD then
    -- One exclusive key and no options, or no key at all, as most have.
    if count == '1' and key and key ~= '' and #key <= MAX_KEY_BYTES then
      from.at = at + 5
      return plain_message(given, { key }), 1
    elseif count == '0' then
      from.at = at + 4
      return plain_message(given, NONE), 0
    end
  end
  local few = SMALL[count]
  if few and few > 1 and few < 10 and args[at + 3] == '0' and args[at + 4] == '0' and #given <= MAX_PAYLOAD then
    local keys = few_keys(args, at + 4, few)
    if keys then
      from.at = at + 4 + few
      return plain_message(given, keys), few
    end
  end
  local m = new_message(take_text(from, MAX_PAYLOAD, 'messages[%d].payload', i), NONE)
  local exclusive = take_whole(from, 0, MAX_KEYS, 'messages[%d].exclusive', i)
  local shared = take_whole(from, 0, MAX_KEYS, 'messages[%d].shared', i)
  local options = take_whole(from, 0, MAX_OPTIONS, 'messages[%d].options', i)
  if exclusive + shared > MAX_KEYS then
    too_many_keys(from, i, exclusive + shared)
  end
  m.plain = shared + options == 0
  local seen = exclusive + shared > 0 and {}
  if exclusive > 0 then
    m.exclusive = {}
    take_keys(from, exclusive, 'messages[%d].exclusive', i, seen, m.exclusive)
  end
  if shared > 0 then
    m.shared = {}
    take_keys(from, shared, 'messages[%d].shared', i, seen, m.shared)
  end
  local given = options > 0 and {}
  for _ = 1, options do
    take_own(from, i, m, given)
  end
  if m.barrier and exclusive + shared > 0 then
    bad(from, 'messages[%d].BARRIER', i, 'is 1, but the message has keys')
  end
  local name, wrong = wrong_beside(from, m)
  if name then
    bad(from, 'messages[%d].' .. name, i, wrong)
  end
  if m.extras and m.extras.WINDOW and not m.extras.DEDUP then
    m.extras.WINDOW = nil
  end
  if not m.coalesce then
    return m, exclusive + shared
  end
  if exclusive + shared == MAX_KEYS then
    too_many_keys(from, i, exclusive + shared + 1)
  end
  from.coalesces = true
  put_in_front(m)
  if m.debounce then
    m.delay = math.min(m.debounce, m.within or NEVER)
  end
  return m, exclusive + shared + 1
end

local function take_messages(from)
  local list, keys = {}, 0
  repeat
    local i = #list + 1
    if i > MAX_BATCH then
      refuse('TOOBIG', '%s: more than %d messages', from.called, MAX_BATCH)
    end
    local m, count = take_message(from, i)
    keys = keys + count
    if keys > MAX_BATCH_KEYS then
      refuse('TOOBIG', '%s: more than %d keys, all messages together', from.called, MAX_BATCH_KEYS)
    end
    list[i] = m
  until not more(from)
  return list
end

-- The new messages, their bytes, and with those that replace a payload all that do something; the others get the id
-- of a known message: one from before, or one of the same batch.
local function new_ones(q, list, names)
  local fresh, entering, named, bytes = {}, {}, {}, 0
  if not names then
    for i = 1, #list do
      bytes = bytes + #list[i].payload
    end
    return list, bytes, list
  end
  for i = 1, #list do
    local m = list[i]
    local text = m.extras and m.extras.DEDUP
    if text then
      m.first = named[text]
      m.known = not m.first and known_id(q, text)
      named[text] = named[text] or not m.known and m
    end
    if not m.first and not m.known then
      entering[#entering + 1] = m
      if not m.onto then
        fresh[#fresh + 1] = m
        bytes = bytes + #m.payload
      end
    end
  end
  return fresh, bytes, entering
end

local function refuse_unknown(q, from)
  for i = 1, #from.after do
    if not known_id(q, from.after[i]) then
      refuse_now(q, 'UNKNOWN', '%s: the queue does not know the dedup string of AFTER', from.called)
    end
  end
end

register('put', function(q, from)
  local consumer, call = take_caller(from)
  local wait = take_wait(from)
  local count, named, plain_bytes = plain_arguments(from.args, from.at)
  local ahead, last = nil, nil
  if count then
    ahead, last = fields_ahead(named, count)
  end
  local list = not count and take_messages(from)
  local reply = kept_reply(q, from, consumer, call, ahead, last)
  if reply then
    return reply
  end
  local c = begin(q)
  refuse_sealed(q, from)
  if from.after then
    refuse_unknown(q, from)
  end
  local waits = c[N.room_until] > q.now
  local kept = waits and room.is_kept(q, consumer)
  if count then
    local bounded = kept
      or c[N.declared] > 0 and (too_large(q, count, plain_bytes) or no_room(q, count, plain_bytes))
    local ids = not bounded and untouched(q) and put_quickly(q, count, named, plain_bytes)
    if ids then
      if waits then
        room.took(q, consumer)
      end
      return answer(q, from, consumer, call, put_reply(ids), 'p' .. ids[1] .. ' ' .. #ids)
    end
    list = take_messages(from)
  end
  local more_bytes, all_bytes, wrong = 0, 0, nil
  if from.coalesces then
    more_bytes, all_bytes, wrong = coalescing.plan(q, list)
  end
  if wrong then
    room.leave(q, consumer)
    refuse_now(q, 'DIFFERS', '%s: %s', from.called, wrong)
  end
  local fresh, bytes, entering = new_ones(q, list, from.names or from.coalesces)
  local needs = #fresh > 0 or more_bytes > 0
  local bounded = c[N.declared] > 0 and needs
  local text = bounded and too_large(q, #fresh, bytes + all_bytes)
  if text then
    room.leave(q, consumer)
    refuse_now(q, 'TOOBIG', '%s: %s', from.called, text)
  end
  text = bounded and behind.too_many(q, fresh)
  if text then
    if waits then
      room.leave(q, consumer)
    end
    refuse_now(q, 'STUCK', '%s: %s', from.called, text)
  end
  bytes = bytes + more_bytes
  text = bounded and (no_room(q, #fresh, bytes)
    or kept and room.KEPT)
  if text then
    if wait > 0 then
      room.wait(q, consumer, wait, #fresh, bytes, from.names or from.coalesces)
    elseif waits then
      room.leave(q, consumer)
    end
    refuse_now(q, 'FULL', '%s: %s', from.called, text)
  end
  if waits and needs then
    room.took(q, consumer)
  elseif waits then
    room.leave(q, consumer)
  end
  look_at_lanes(q, fresh)
  if q.turns then
    turns.look_at(q, fresh)
  end
  reply = {}
  local newest = {}
  for i = 1, #list do
    local m = list[i]
    -- The first one of a dedup string or coalescing name may be gone with a held message.
    local known = (m.known or m.first) and known_id(q, m.extras.DEDUP)
    local onto = m.onto and (m.onto.gone and newest[m.coalesce] or m.onto)
    if known then
      c[N.deduplicated] = c[N.deduplicated] + 1
    elseif onto and not onto.gone then
      coalescing.replace(q, onto, m)
    else
      if not enter_plain(q, m) then
        enter(q, m)
      end
      onto, newest[m.coalesce or ''] = nil, m
    end
    reply[2 * i - 1], reply[2 * i] = known or onto and onto.id or m.id, known and '1' or onto and '2' or '0'
  end
  return answer(q, from, consumer, call, reply)
end)
