-- il1_revoke: id then [token]
-- Ends the lease of a message as if it had expired (clause 24); with a token only that lease.
-- Answers 1, or 0: it is not leased, or not with that token.

local REVOKE = { retry = true, hold = true, dead = true, skip = true, told = 'retry, hold, dead or skip' }

register('revoke', function(q, from)
  local id = take.number(from, 'id')
  local ends = take.word(from, REVOKE, 'then')
  local token = more(from) and take.number(from, 'token')
  take_end(from)
  local c = begin(q)
  local m = find(q, id)
  local done = m and m.state == 'L' and (not token or m.token == token)
  if done then
    leases.end_some(q, m.token, 1 + runs.part(q, runs.riders(q, m)))
    c[N.revoked] = c[N.revoked] + 1
    if ends == 'retry' then
      outcome.fail(q, m, nil, 'revoked')
    elseif ends == 'skip' then
      c[N.skipped] = c[N.skipped] + 1
      if q.watched then
        events.happened(q, 'skip', m, m.token)
      end
      results.keep(q, m, 's', '')
      outcome.settle(q, m)
    else
      outcome.give_up(q, m, 'revoked', ends == 'hold')
    end
    behind.move(q)
  end
  commit(q)
  return { done and '1' or '0' }
end)
