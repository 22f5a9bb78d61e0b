-- il1_cancel: id
-- Settles a message that is not leased (clause 23). Answers 1, or 0: it is leased, or not there.

register('cancel', function(q, from)
  local id = take.number(from, 'id')
  take_end(from)
  begin(q)
  local m = find(q, id)
  local done = m and STATES[m.state] ~= 'leased'
  if done then
    outcome.cancel(q, m)
    behind.move(q)
  end
  commit(q)
  return { done and '1' or '0' }
end)
