-- il1_limits: count
-- What is used of limit names (clauses 26 and 27), and how many messages wait for each: of the names that messages wait
-- for, the first MAX_AWAITED by their bytes, and of those that are declared without '*'. Answers how many names messages
-- wait for, then `count` of these, those with most waiting messages first: name, number, interval and burst of the rate,
-- leased and waiting messages, keeper, time until the next grant, time until it opens.

-- As declared in wire/limits.toml.
local MAX_AWAITED = 1000

local function by_waiting(a, b)
  if a.waiting ~= b.waiting then
    return a.waiting > b.waiting
  end
  return limit_names.below(a.name, b.name)
end

-- The time until the rate of a name allows a grant to others than a keeper; nothing if it never does, or there is no rate.
local function next_in(q, s)
  local rate = s.rate
  if not rate or s.kept and rate.burst == 1 then
    return ''
  end
  return digits(math.max(s.even - rate.span + (s.kept and rate.interval or 0) - q.now, 0))
end

local function tell(q, name, reply)
  local s = slots.of(q, name)
  local most = slots.most_of(q, name, s)
  local rate = s.rate
  description.append(reply, {
    name, most < NEVER and digits(most) or '', rate and digits(rate.interval) or '', rate and digits(rate.burst) or '',
    digits(s.leased), digits(s.keyed + s.unkeyed + s.moved + s.others), s.keeper and message_at(q, s.keeper).id or '',
    next_in(q, s), s.closed > q.now and digits(s.closed - q.now) or '',
  })
end

register('limits', function(q, from)
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  take_end(from)
  local c = look(q)
  if c[N.gated] == 0 then
    -- No message has a name; a rate may be in use, or a name closed.
    q.slots, q.timed = {}, c[N.timed]
  end
  local names, seen, found = redis_call('ZRANGE', q.sn, 0, MAX_AWAITED - 1), {}, {}
  for _, name in ipairs(names) do
    seen[name] = true
  end
  for _, name in ipairs(limit_names.declared(option(q, 'LIMITS'))) do
    if not seen[name] then
      names[#names + 1] = name
    end
  end
  slots.read(q, names, #names)
  rates.read(q, names, #names)
  for i, name in ipairs(names) do
    local s = slots.of(q, name)
    found[i] = { name = name, waiting = s.keyed + s.unkeyed + s.moved + s.others }
  end
  table.sort(found, by_waiting)
  local reply = { digits(redis_call('ZCARD', q.sn)) }
  for i = 1, math.min(count, #found) do
    tell(q, found[i].name, reply)
  end
  return reply
end)
