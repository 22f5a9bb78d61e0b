-- Announced workers, and the requests to them. The queue's own calls read none of this, and it
-- makes no queue.
--
-- | key | holds |
-- |---|---|
-- | workers | the names, by their bytes |
-- | workers:until | when each is forgotten |
-- | workers:said | of each: when it announced itself last, and its text |
-- | workers:asked | of each: the requests that wait, number and text; under no name the last number |

local OF_WORKERS = { 'workers', 'workers:until', 'workers:said', 'workers:asked' }
-- ms by which the keys outlast their contents.
local OUTLAST = 60000

-- A table of functions: a library is limited to 200 names.
local workers = {}

function workers.take(from)
  local worker = take.text(from, MAX_NAME, 'worker')
  if worker == '' then
    bad(from, 'worker', 0, 'is empty')
  end
  return worker
end

function workers.forget(q, names)
  bulk('ZREM', q['workers'], names)
  bulk('ZREM', q['workers:until'], names)
  bulk('HDEL', q['workers:said'], names)
  bulk('HDEL', q['workers:asked'], names)
end

-- Those whose time is over, some per call.
function workers.expire(q)
  workers.forget(q, redis_call('ZRANGEBYSCORE', q['workers:until'], '-inf', digits(q.now), 'LIMIT', 0, MAX_DUE))
end

-- The remaining µs of a worker; nil if it does not exist.
function workers.left(q, worker)
  local ends = redis_call('ZSCORE', q['workers:until'], worker)
  local left = ends and to_number(ends) - q.now or 0
  return left > 0 and left or nil
end

-- The keys live for at least this many µs.
function workers.keep(q, span)
  local ms = math.ceil(span / 1000) + OUTLAST
  for i = 1, #OF_WORKERS do
    local key = q[OF_WORKERS[i]]
    redis_call('PEXPIRE', key, digits(ms), 'NX')
    redis_call('PEXPIRE', key, digits(ms), 'GT')
  end
end

function workers.requests(q, worker)
  local packed = redis_call('HGET', q['workers:asked'], worker)
  return packed and cmsgpack.unpack(packed) or {}
end
