-- il1_pause: [key]...
-- Stops leasing messages that hold one of these keys or, without keys, all messages (clause 22).
-- Answers 1 for each, or 0 if it was already paused.

register('pause', function(q, from)
  local keys = pauses.take(from)
  local c, reply = begin(q), {}
  for i, key in ipairs(keys) do
    local new = not get(hash(q, 'pk'), key)
    if new then
      set(hash(q, 'pk'), key, '1')
      c[N.paused] = c[N.paused] + 1
      behind.pause(q, key)
    end
    reply[i] = new and '1' or '0'
  end
  if q.slots then
    -- A keeper whose key is paused keeps nothing any more.
    for _, m in ipairs(slots.keepers_on(q, keys)) do
      slots.leave(q, m)
      make_ready(q, m)
    end
  end
  if #keys == 0 then
    reply[1] = c[N.halted] == 0 and '1' or '0'
    c[N.halted] = 1
  end
  behind.move(q)
  commit(q)
  return reply
end)
