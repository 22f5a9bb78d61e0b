-- il1_announce: worker ttl text
-- A worker's announcement, valid for the ttl; with 0 it is removed. Answers number and text of each request that
-- was left for it, and takes them.

register('announce', function(q, from)
  local worker = workers.take(from)
  local ttl = take.whole(from, 0, MAX_SPAN, 'ttl')
  local text = take.text(from, MAX_ANNOUNCED, 'text')
  take_end(from)
  q.now = (now_of(q))
  workers.expire(q)
  local known = workers.left(q, worker)
  if not known and ttl > 0 and redis_call('ZCOUNT', q['workers:until'], '(' .. digits(q.now), '+inf') >= MAX_WORKERS then
    refuse('TOOBIG', '%s: more than %d workers', from.called, MAX_WORKERS)
  end
  local asked = known and workers.requests(q, worker) or {}
  workers.forget(q, { worker })
  if ttl > 0 then
    redis_call('ZADD', q['workers'], 0, worker)
    redis_call('ZADD', q['workers:until'], digits(q.now + ttl), worker)
    redis_call('HSET', q['workers:said'], worker, string_format('%016d', q.now) .. text)
    workers.keep(q, ttl)
  end
  return asked
end)
