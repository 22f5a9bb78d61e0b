-- il1_ask: worker text
-- Leaves a request for a worker. Answers its number; nothing where no such worker is announced.

register('ask', function(q, from)
  local worker = workers.take(from)
  local text = take.text(from, MAX_ASKED, 'text')
  take_end(from)
  q.now = (now_of(q))
  local left = workers.left(q, worker)
  if not left then
    return {}
  end
  local last = to_number(redis_call('HGET', q['workers:asked'], '') or 0)
  local number = digits(math.max(last + 1, q.now))
  local asked = workers.requests(q, worker)
  asked[#asked + 1], asked[#asked + 2] = number, text
  if #asked > 2 * MAX_REQUESTS then
    table.remove(asked, 1)
    table.remove(asked, 1)
  end
  redis_call('HSET', q['workers:asked'], worker, cmsgpack.pack(asked), '', number)
  workers.keep(q, left)
  return { number }
end)
