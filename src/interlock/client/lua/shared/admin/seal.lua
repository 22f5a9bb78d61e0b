-- Sealing a queue, and opening it again (clause 15).

local function seal(q, from, sealed)
  take_end(from)
  local c = begin(q)
  local new = c[N.sealed] ~= sealed
  c[N.sealed] = sealed
  commit(q)
  return { new and '1' or '0' }
end

local function refuse_sealed(q, from)
  if q.counters[N.sealed] > 0 then
    refuse_now(q, 'SEALED', '%s: the queue accepts no messages until il%s_reopen', from.called, ABOUT.wire)
  end
end
