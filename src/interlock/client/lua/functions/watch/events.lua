-- il1_events: after count duration
-- Notes a watcher for this duration, and answers the last number, how many events after `after` are
-- gone, and events. Applies nothing that is due.

-- Appends an event with its number; answers the bytes that count.
local function tell_event(number, packed, reply)
  local event = cmsgpack.unpack(packed)
  local exclusive, shared = event[8], event[9]
  reply[#reply + 1] = digits(number)
  for i = 1, 7 do
    reply[#reply + 1] = event[i]
  end
  reply[#reply + 1] = tostring(#exclusive)
  reply[#reply + 1] = tostring(#shared)
  description.append(reply, exclusive)
  description.append(reply, shared)
  return description.bytes_told(event[6], exclusive, shared, event[7])
end

register('events', function(q, from)
  local after = from.args[1] ~= '' and take.whole(from, 0, MAX_NUMBER, 'after')
  if not after then
    from.at = 1
  end
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  local duration = take.whole(from, 1, MAX_WATCH, 'duration')
  take_end(from)
  local c = look(q)
  events.watch(q, duration)
  local last = c[N.event_last]
  if not after then
    return { digits(last), '0' }
  end
  local first = last + 1 - redis_call('LLEN', q.ev)
  local reply, bytes = { digits(last), digits(math.max(0, first - 1 - after)) }, 0
  local next = math.max(after + 1, first)
  while count > 0 and bytes < MAX_EVENT_BYTES and next <= last do
    local from_here = next - first
    local some = redis_call('LRANGE', q.ev, from_here, from_here + math.min(count, 64) - 1)
    for i = 1, #some do
      if bytes < MAX_EVENT_BYTES then
        bytes = bytes + tell_event(next, some[i], reply)
        next, count = next + 1, count - 1
      end
    end
  end
  return reply
end)
