-- The end of leases.

local lease_of, keep_lease = leases.of, leases.keep
local fix_reply = forms.fix_reply

-- This many of a lease's messages are no longer out.
local function end_some(q, token, count)
  local lease = lease_of(q, token)
  fix_reply(q, token, lease.consumer)
  q.counters[N.leased] = q.counters[N.leased] - count
  q.eased = q.eased or q.counters[N.coalescing] > 0
  lease.out = lease.out - count
  if lease.out == 0 then
    set(hash(q, 't'), token, false)
    redis_call('ZREM', q.due, 'a' .. token)
  else
    keep_lease(q, lease)
  end
end

leases.end_some = end_some
