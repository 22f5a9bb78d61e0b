-- il1_stats: counts, as pairs of name and number. It writes nothing and so applies nothing that is
-- due: what ran out since the last call still counts as it did.

register('stats', { 'no-writes' }, function(q, from)
  take_end(from)
  local counted = redis.call('HMGET', q.c, 'delayed', 'backing_off', 'known')
  local delayed, backing_off = tonumber(counted[1] or 0), tonumber(counted[2] or 0)
  local unsettled = redis.call('HLEN', q.p)
  local ready = redis.call('ZCARD', q.rk) + redis.call('ZCARD', q.ru)
  local leased = redis.call('HLEN', q.t)
  return {
    'unsettled', digits(unsettled),
    'ready', digits(ready),
    'waiting', digits(unsettled - ready - leased - backing_off - delayed),
    'leased', digits(leased),
    'backing_off', digits(backing_off),
    'delayed', digits(delayed),
    'dead', digits(redis.call('HLEN', q.x)),
    'lanes', digits(redis.call('HLEN', q.tail)),
    'known', digits(tonumber(counted[3] or 0)),
  }
end)
