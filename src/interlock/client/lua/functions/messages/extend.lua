-- il1_extend: token duration [waiting]
-- Sets the deadline of a lease to this long from now. It is one write for all its messages, and a
-- repetition does no harm: it takes no call number, so that a heartbeat need not wait for the
-- consumer's other calls. `waiting`: no handler has begun any of them yet. Answers the deadline, or
-- LEASELOST.

local WAITING = { waiting = true, told = 'waiting' }

register('extend', function(q, from)
  local token = take.number(from, 'token')
  local duration = take.whole(from, 1, MAX_SPAN, 'duration')
  local waits = more(from) and take.word(from, WAITING, 'waiting')
  take_end(from)
  begin(q)
  local reply = { 'LEASELOST' }
  if leases.alive(q, token) then
    local lease = leases.of(q, token)
    lease.deadline = digits(q.now + duration)
    if lease.told ~= 'b' and (waits or lease.told == 'w' or lease.told == 's') then
      lease.text = string_sub(lease.text, 1, 40) .. (waits and 'w' or 'b') .. string_sub(lease.text, 42)
    end
    leases.keep(q, lease)
    fall_due_at(q, q.now + duration, 'a' .. token)
    reply = { lease.deadline }
  end
  commit(q)
  return reply
end)
