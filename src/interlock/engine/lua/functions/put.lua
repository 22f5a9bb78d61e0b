-- il1_put: consumer call wait message...
--   message: payload exclusive shared options, then so many keys, keys, and pairs of name and value
-- Answers for each message its id, and 1 if its dedup string was known.
-- No allow-oom: a full server takes nothing new.

local function take_keys(from, count, mode, i, seen, list)
  local function wrong(k, text)
    bad(from, 'messages[%d].' .. mode .. '[' .. k .. ']', i, text)
  end
  for k = 1, count do
    local key = from.args[from.at + k]
    if not key then
      wrong(k, 'is missing')
    elseif key == '' then
      wrong(k, 'is empty')
    elseif #key > MAX_KEY_BYTES then
      wrong(k, string.format('has %d bytes; at most %d', #key, MAX_KEY_BYTES))
    end
    -- A key named twice counts once, and one named in both ways is exclusive.
    if not seen[key] then
      seen[key] = true
      list[#list + 1] = key
    end
  end
  from.at = from.at + count
end

local function take_option(from, i, m)
  local name = take(from, 'messages[%d].options', i)
  if name == 'PRIORITY' then
    m.priority = take_whole(from, -100, 100, 'messages[%d].PRIORITY', i)
  elseif name == 'DELAY' then
    m.delay = take_whole(from, 0, MAX_SPAN, 'messages[%d].DELAY', i)
  elseif name == 'DEDUP' then
    m.dedup = take_text(from, MAX_TEXT, 'messages[%d].DEDUP', i)
    if m.dedup == '' then
      bad(from, 'messages[%d].DEDUP', i, 'is empty')
    end
  elseif name == 'WINDOW' then
    m.window = take_whole(from, 0, MAX_SPAN, 'messages[%d].WINDOW', i)
  elseif name == 'ATTEMPTS' then
    m.attempts = take_whole(from, 0, 1000000000, 'messages[%d].ATTEMPTS', i)
  elseif name == 'BARRIER' then
    refuse('NOTSUPPORTED', '%s: messages[%d].BARRIER: this library has no barriers', from.called, i)
  else
    bad(from, 'messages[%d].options', i,
      'holds a name that is not PRIORITY, DELAY, DEDUP, WINDOW or ATTEMPTS')
  end
end

-- Nothing is ever put into this one: most messages lack some list, and a table costs.
local NONE = {}

local function take_message(from, i)
  local m = {
    payload = take_text(from, MAX_PAYLOAD, 'messages[%d].payload', i),
    exclusive = NONE, shared = NONE, groups = NONE, priority = 0, attempts = DEFAULT_ATTEMPTS,
    dedup = '', window = DEFAULT_WINDOW, sequence = '', delay = 0,
  }
  local exclusive = take_whole(from, 0, MAX_KEYS, 'messages[%d].exclusive', i)
  local shared = take_whole(from, 0, MAX_KEYS, 'messages[%d].shared', i)
  local options = take_whole(from, 0, 16, 'messages[%d].options', i)
  if exclusive + shared > MAX_KEYS then
    bad(from, 'messages[%d]', i,
      string.format('has %d keys; at most %d', exclusive + shared, MAX_KEYS))
  end
  local seen = exclusive + shared > 0 and {}
  if exclusive > 0 then
    m.exclusive = {}
    take_keys(from, exclusive, 'exclusive', i, seen, m.exclusive)
  end
  if shared > 0 then
    m.shared, m.groups = {}, {}
    take_keys(from, shared, 'shared', i, seen, m.shared)
  end
  for _ = 1, options do
    take_option(from, i, m)
  end
  return m, exclusive + shared
end

-- Nothing is ever put into this one: most messages lack some list, and a table costs.
local NONE = {}

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

-- The id that a dedup string is known by, unless its window is over.
local function known_id(q, now, text)
  local id = redis.call('HGET', q.u, text)
  if not id then
    return nil
  end
  local over = redis.call('ZSCORE', q.uw, text)
  if over and tonumber(over) <= now then
    -- Gone already, or the purge would take the new message's entry.
    redis.call('ZREM', q.uw, text)
    return nil
  end
  return id
end

-- Gives ids to the messages that are new, in the order of the batch, and answers these.
local function new_ones(q, now, list, reply)
  local fresh, named, known = {}, {}, {}
  for _, m in ipairs(list) do
    if m.dedup ~= '' then
      m.first = named[m.dedup]
      m.known = not m.first and known_id(q, now, m.dedup)
      if not m.first and not m.known then
        named[m.dedup] = m
      end
    end
    if not m.first and not m.known then
      fresh[#fresh + 1] = m
    end
  end
  local first = #fresh > 0 and draw(q, 'seq', now, #fresh)
  for i, m in ipairs(fresh) do
    m.id = digits(first + i - 1)
    if m.dedup ~= '' then
      known[#known + 1] = m.dedup
      known[#known + 1] = m.id
    end
  end
  bulk('HSET', q.u, known)
  for _, m in ipairs(list) do
    reply[#reply + 1] = m.id or m.known or m.first.id
    reply[#reply + 1] = m.id and '0' or '1'
  end
  if #fresh < #list then
    redis.call('HINCRBY', q.c, 'known', #list - #fresh)
  end
  return fresh
end

register('put', {}, function(q, from)
  local consumer, call = take_caller(from)
  take_wait(from)
  local list = take_messages(from)
  local reply = kept_reply(q, from.called, consumer, call)
  if reply then
    return reply
  end
  reply = {}
  local now = now_of(q)
  apply_due(q, now)
  local fresh = new_ones(q, now, list, reply)
  local placed, delayed = {}, {}
  for _, m in ipairs(fresh) do
    if m.delay > 0 then
      delayed[#delayed + 1] = digits(now + m.delay)
      delayed[#delayed + 1] = 'd' .. m.id
    else
      placed[#placed + 1] = m
    end
  end
  local ready = link(q, placed)
  local packed = {}
  for _, m in ipairs(fresh) do
    packed[#packed + 1] = m.id
    packed[#packed + 1] = pack(m)
  end
  bulk('HSET', q.p, packed)
  push_ready(q, ready)
  if #delayed > 0 then
    bulk('ZADD', q.due, delayed)
    redis.call('HINCRBY', q.c, 'delayed', #delayed / 2)
  end
  return keep_reply(q, from.called, consumer, call, reply)
end)
