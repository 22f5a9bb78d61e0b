-- An operator's decisions on a held or backing-off message.

-- Ends the hold or backoff of the message that the call names, and then does `how`.
local function stopped(q, from, how)
  local id = take.number(from, 'id')
  take_end(from)
  begin(q)
  local m = find(q, id)
  local done = m and (m.state == 'H' or m.state == 'B') and how(m, true)
  if done then
    if m.state == 'B' then
      outcome.end_backoff(q, m)
    else
      outcome.end_hold(q, m)
    end
    how(m)
    behind.move(q)
  end
  commit(q)
  return { done and '1' or '0' }
end
