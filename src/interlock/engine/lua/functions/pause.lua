-- il1_pause: [key]...
-- Nothing that holds one of these keys is handed out, or without any, nothing at all (clause 22).
-- Answers for each 1, or 0 where it was so already.

register('pause', function(q, from)
  local keys = take_paused(from)
  local c, reply = begin(q), {}
  for i, key in ipairs(keys) do
    local new = not get(hash(q, 'pk'), key)
    if new then
      set(hash(q, 'pk'), key, '1')
      c[N.paused] = c[N.paused] + 1
    end
    reply[i] = new and '1' or '0'
  end
  if #keys == 0 then
    reply[1] = c[N.halted] == 0 and '1' or '0'
    c[N.halted] = 1
  end
  commit(q)
  return reply
end)
