-- il1_forget: id
-- Drops the stored outcome of a message. Answers 1, or 0: none is stored.

register('forget', function(q, from)
  local id = take.number(from, 'id')
  take_end(from)
  local c = begin(q)
  local text = c[N.results] > 0 and redis_call('HGET', q.res, id)
  local there = text and to_number(string_sub(text, 2, 17)) > q.now
  if there then
    results.drop(q, { id })
  end
  commit(q)
  return { there and '1' or '0' }
end)
