-- il1_revoke: id then
-- Ends the lease of a message as if it had run out (clause 24). Answers 1, or 0: it is not leased.

local REVOKE = { retry = true, hold = true, dead = true, skip = true, told = 'retry, hold, dead or skip' }

register('revoke', { 'allow-oom' }, function(q, from)
  local id = take_number(from, 'id')
  local ends = take_word(from, REVOKE, 'then')
  take_end(from)
  local c = begin(q)
  local m = find(q, id)
  local done = m and m.state == 'L'
  if done then
    end_some(q, m.token, 1)
    c[N.revoked] = c[N.revoked] + 1
    if ends == 'retry' then
      fail(q, m, nil, 'revoked')
    elseif ends == 'skip' then
      c[N.skipped] = c[N.skipped] + 1
      keep_result(q, m, 's', '')
      settle(q, m)
    else
      give_up(q, m, 'revoked', ends == 'hold')
    end
  end
  commit(q)
  return { done and '1' or '0' }
end)
