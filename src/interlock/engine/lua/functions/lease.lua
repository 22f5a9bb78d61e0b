-- il1_lease: consumer call wait count duration kind
-- Answers token, deadline, next, count, then each message.

local function take_lease(from)
  local count = take_whole(from, 1, MAX_BATCH, 'count')
  local duration = take_whole(from, 1, MAX_SPAN, 'duration')
  local kind = take(from, 'kind')
  if kind ~= 'any' and kind ~= 'keyed' and kind ~= 'unkeyed' then
    bad(from, 'kind', 0, 'is not any, keyed or unkeyed')
  end
  return count, duration, kind
end

register('lease', { 'allow-oom' }, function(q, from)
  local consumer, call = take_caller(from)
  take_wait(from)
  local count, duration, kind = take_lease(from)
  take_end(from)
  local reply = kept_reply(q, from.called, consumer, call)
  if reply then
    return reply
  end
  reply = {}
  local now = now_of(q)
  apply_due(q, now)
  grant(q, now, consumer, count, duration, kind, reply)
  return keep_reply(q, from.called, consumer, call, reply)
end)
