-- Events of messages, while somebody watches (il1_events): the counter watched says until when. The
-- list ev has the last events, and event_last is the number of the last one. A queue that does not
-- exist may be watched: then w:events has both numbers until it is made.

-- Lifetime in ms of keys that a call makes: a watch, of at most MAX_WATCH, ends before.
local WATCH_KEPT = 120000

-- A table of functions: a library is limited to 200 names.
local events = {}

-- The first of these keys, as many as an event has.
function events.told_keys(keys)
  local told, bytes = {}, 0
  for i = 1, math.min(#keys, MAX_EVENT_KEYS) do
    bytes = bytes + #keys[i]
    if bytes > MAX_EVENT_KEY_BYTES then
      break
    end
    told[i] = keys[i]
  end
  return told
end

-- Notes an event, to be written at the end of the call.
function events.note(q, kind, id, attempt, token, consumer, text, exclusive, shared)
  q.events[#q.events + 1] = {
    digits(q.now), kind, id, tostring(attempt), token, consumer, string_sub(text, 1, MAX_TEXT),
    events.told_keys(exclusive), events.told_keys(shared),
  }
end

-- The same for a message, with the token of the ending lease and the error, if any.
function events.happened(q, kind, m, token, text)
  text = text and string.gsub(text, '[\30\31]', ' ') or ''
  events.note(q, kind, m.id, attempt_of(m), token or '', '', text, m.exclusive, m.shared)
end

-- For plain messages, by their keys: see plain.lua.
function events.plainly(q, kind, id, token, consumer, keys)
  events.note(q, kind, id, 1, token, consumer, '', keys, NONE)
end

-- Those after the first few, by id: they came in no order.
function events.sort(q, before)
  local all = { table_unpack(q.events, before + 1) }
  table.sort(all, function(a, b)
    return a[3] < b[3]
  end)
  for i = 1, #all do
    q.events[before + i] = all[i]
  end
end

function events.flush(q)
  local packed, c = {}, q.counters
  for i = 1, #q.events do
    packed[i] = cmsgpack.pack(q.events[i])
  end
  q.events = {}
  local kept = 0
  for first = 1, #packed, CHUNK do
    kept = redis_call('RPUSH', q.ev, table_unpack(packed, first, math.min(first + CHUNK - 1, #packed)))
  end
  if kept == #packed then
    redis_call('PEXPIRE', q.ev, WATCH_KEPT)
  end
  if kept > MAX_EVENTS then
    redis_call('LTRIM', q.ev, -MAX_EVENTS, -1)
  end
  c[N.event_last] = c[N.event_last] + #packed
end

-- Drops the events once nobody watches, and the last number when all future times exceed it.
function events.end_watch(q)
  local c = q.counters
  if c[N.watched] > 0 and c[N.watched] <= q.now then
    redis_call('UNLINK', q.ev)
    c[N.watched] = 0
  end
  if c[N.watched] == 0 and c[N.event_last] > 0 and c[N.event_last] <= q.now then
    c[N.event_last] = 0
  end
end

-- Notes a watcher for this time.
function events.watch(q, duration)
  local c = q.counters
  if c[N.watched] <= q.now then
    redis_call('UNLINK', q.ev)
    c[N.event_last] = math.max(c[N.event_last], q.now)
  else
    redis_call('PEXPIRE', q.ev, WATCH_KEPT)
  end
  c[N.watched] = math.max(c[N.watched], q.now + duration)
  if q.loaded and q.loaded ~= '' then
    save_counters(q)
    write_out(q)
  else
    local numbers = struct_pack('dd', c[N.watched], c[N.event_last])
    redis_call('SET', q['w:events'], numbers, 'PX', WATCH_KEPT)
  end
end
