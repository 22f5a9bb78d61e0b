-- il1_workers: after count
-- The workers with names above `after`: of each its name, how many µs ago it announced itself, in how many it is
-- forgotten, and its text.

register('workers', function(q, from)
  local after = take.text(from, MAX_NAME, 'after')
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  take_end(from)
  q.now = (now_of(q))
  local reply, bytes = {}, 0
  repeat
    local names = redis_call('ZRANGEBYLEX', q['workers'], '(' .. after, '+', 'LIMIT', 0, READ_AT_ONCE)
    local said = fetch(q['workers:said'], names)
    for i = 1, #names do
      local left = said[i] and workers.left(q, names[i])
      if left and count > 0 and bytes < MAX_TOLD then
        local text = string_sub(said[i], 17)
        local age = q.now - to_number(string_sub(said[i], 1, 16))
        description.append(reply, { names[i], digits(math.max(age, 0)), digits(left), text })
        bytes, count = bytes + #names[i] + #text, count - 1
      end
      after = names[i]
    end
  until #names < READ_AT_ONCE or count == 0 or bytes >= MAX_TOLD
  return reply
end)
