-- il1_join: wait [id]
-- Whether a message is settled, or all are. Answers how many are unsettled, and in how many µs
-- something falls due. A caller that wants to wait continues in BLMOVE; see waiting.

register('join', function(q, from)
  local wait = take.wait(from)
  local id = more(from) and take.number(from, 'id')
  take_end(from)
  local left = begin(q)[N.unsettled]
  if not q.loaded then
    -- Asking does not make a queue.
    return { '0', '' }
  end
  if id then
    left = find(q, id) and 1 or 0
  end
  local due = left > 0 and falls_due(q) or ''
  if left > 0 and wait > 0 then
    waiters.wait_for_end(q, id or 'all', wait)
  end
  commit(q)
  return { digits(left), due }
end)
