-- il1_discard: id
-- Drops a dead letter. Answers 1, or 0: this id does not exist.

register('discard', function(q, from)
  local id = take.number(from, 'id')
  take_end(from)
  begin(q)
  local there = redis_call('HEXISTS', q.x, id) == 1
  if there then
    letters.drop(q, { id })
  end
  commit(q)
  return { there and '1' or '0' }
end)
