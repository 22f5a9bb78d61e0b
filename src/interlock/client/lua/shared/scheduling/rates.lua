-- Rates (clause 27) by the generic cell rate algorithm. A name with a rate has one number, `even`: the time of the next
-- grant if grants come evenly. Each grant moves it one interval ahead; it may be a burst ahead of the clock. A handler
-- may also close a name, with or without a rate, until a given time.
--
-- The sorted set rt holds these times, of t NAME and c NAME. Past times mean nothing. The counter timed is the latest
-- of them, and q.timed is its value at the begin of the call: if that is past, the call does not read rt.

-- A table of functions: a library is limited to 200 names.
local rates = {}

-- Reads the times of these names, whose slots have been read.
function rates.read(q, names, count)
  local unread, asked, n = {}, {}, 0
  for i = 1, count do
    local name = names[i]
    local s = q.slots[name]
    if s.even == nil then
      s.even, s.closed = 0, 0
      n = n + 1
      unread[n], asked[2 * n - 1], asked[2 * n] = s, 't' .. name, 'c' .. name
    end
  end
  if q.timed <= q.now then
    return
  end
  for first = 1, 2 * n, CHUNK do
    local found = redis_call('ZMSCORE', q.rt, table_unpack(asked, first, math.min(first + CHUNK - 1, 2 * n)))
    for i = 1, #found, 2 do
      local s = unread[(first + i) / 2]
      s.even, s.closed = to_number(found[i] or 0), to_number(found[i + 1] or 0)
    end
  end
end

-- The time before which a name refuses the message with this place. A keeper of a rate has the next grant: others need
-- one more, which a burst of 1 never has.
function rates.opens(q, name, s, place)
  if s.even == nil then
    rates.read(q, { name }, 1)
  end
  local rate = s.rate
  if not rate then
    return s.closed
  end
  local opens = s.even - rate.span
  if s.kept and s.keeper ~= place then
    if rate.burst == 1 then
      return NEVER
    end
    opens = opens + rate.interval
  end
  return math.max(opens, s.closed)
end

-- How many grants of a name the time allows now, beside the one that a keeper has; NEVER without a rate.
function rates.allowed(q, name, s)
  if s.even == nil then
    rates.read(q, { name }, 1)
  end
  local rate = s.rate
  if s.closed > q.now then
    return 0
  elseif not rate then
    return NEVER
  end
  local count = math.floor((q.now + rate.span - math.max(s.even, q.now)) / rate.interval) + 1
  return math.max(count - (s.kept and 1 or 0), 0)
end

-- Charges a grant of a name, whose times have been read.
function rates.charge(q, s)
  local even = math.max(s.even, q.now) + s.rate.interval
  s.even, s.charged = even, true
  if even > q.counters[N.timed] then
    q.counters[N.timed] = even
  end
end

-- Writes pairs of time and member. New members replace past ones.
function rates.write(q, times)
  local new = 0
  for first = 1, #times, CHUNK do
    new = new + redis_call('ZADD', q.rt, table_unpack(times, first, math.min(first + CHUNK - 1, #times)))
  end
  if new > 0 then
    redis_call('ZREMRANGEBYSCORE', q.rt, '-inf', digits(q.now))
  end
end

-- Drops all times once they are past, and no message has a limit name: the next grant would enter its own again.
function rates.expire(q)
  local c = q.counters
  if c[N.timed] > 0 and c[N.timed] <= q.now and c[N.due] > q.now and c[N.gated] == 0 then
    redis_call('UNLINK', q.rt)
    c[N.timed] = 0
  end
end

-- The limits of the queue were changed: a name is at most a burst of its new rate ahead of the clock.
function rates.configure(q)
  local found, times, gone = redis_call('ZRANGE', q.rt, 0, -1, 'WITHSCORES'), {}, {}
  for i = 1, #found, 2 do
    if string_sub(found[i], 1, 1) == 't' then
      local rate = limit_names.limit_of(option(q, 'LIMITS'), string_sub(found[i], 2))
      local latest = type(rate) == 'table' and q.now + rate.burst * rate.interval
      if not latest then
        gone[#gone + 1] = found[i]
      elseif to_number(found[i + 1]) > latest then
        times[#times + 1], times[#times + 2] = digits(latest), found[i]
      end
    end
  end
  bulk('ZADD', q.rt, times)
  bulk('ZREM', q.rt, gone)
  local last = redis_call('ZRANGE', q.rt, -1, -1, 'WITHSCORES')[2]
  q.counters[N.timed] = to_number(last or 0)
end
