-- il1_resume: [key]...
-- Undoes a pause of these keys, or without any of the queue. Answers for each 1, or 0 where it was not
-- paused.

local function resume_key(q, key)
  if not get(hash(q, 'pk'), key) then
    return false
  end
  local c, aside = q.counters, name_of(q, 'park:' .. key)
  set(hash(q, 'pk'), key, false)
  c[N.paused] = c[N.paused] - 1
  behind.note_open(q, key)
  if redis_call('EXISTS', aside) == 1 then
    c[N.moved] = c[N.moved] + 1
    redis_call('RENAME', aside, name_of(q, 'back:' .. c[N.moved]))
    redis_call('RPUSH', q.back, c[N.moved])
    c[N.returning] = c[N.returning] + 1
    pauses.take_back(q)
  end
  return true
end

register('resume', function(q, from)
  local keys = pauses.take(from)
  local c, reply = begin(q), {}
  for i, key in ipairs(keys) do
    reply[i] = resume_key(q, key) and '1' or '0'
  end
  if #keys == 0 then
    reply[1] = tostring(c[N.halted])
    c[N.halted] = 0
  end
  behind.move(q)
  commit(q)
  return reply
end)
