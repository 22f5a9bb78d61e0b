-- Due events: each call that writes applies them first, at their times (clause 20), and continues
-- with the rest of earlier calls. One sorted set has all of them, with the time as score; a letter
-- gives the kind: a and a token for a lease's deadline; b and a place, backing off; d and an id,
-- delayed; n and a limit name, or k and a keeper's place, whose time comes (see openings.lua).

local look_at_lanes, go_on = lanes.look_at, lanes.go_on
local expire_results = results.expire
local open_gates = barriers.open_gates
local ran_out = outcome.ran_out
local lease_of, places_of, end_some = leases.of, leases.places, leases.end_some

-- Which kinds are due, by their letters; all may be if there are many.
local function kinds_due(q)
  local members, kinds = redis_call('ZRANGEBYSCORE', q.due, '-inf', digits(q.now), 'LIMIT', 0, 2 * MAX_DUE), {}
  if #members == 2 * MAX_DUE then
    return { a = true, b = true, d = true, n = true, k = true }
  end
  for _, member in ipairs(members) do
    kinds[string_sub(member, 1, 1)] = true
  end
  return kinds
end

local function due_before(q, letter, most)
  local from, found = '', {}
  local members = redis_call('ZRANGEBYSCORE', q.due, '-inf', digits(q.now), 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    if string_sub(member, 1, 1) == letter then
      found[#found + 1] = string_sub(member, 2)
    end
  end
  return found, #members == most
end

-- Messages of expired leases, the first deadline first, then the first id.
local function expired(q, left)
  local over = {}
  for _, token in ipairs((due_before(q, 'a', 2 * MAX_DUE))) do
    if #over >= left then
      break
    end
    local lease = lease_of(q, token)
    for _, m in ipairs(messages_at(q, places_of(lease))) do
      if m and m.state == 'L' and m.token == token then
        m.deadline, m.told = lease.deadline, lease.told
        over[#over + 1] = m
      end
    end
  end
  table.sort(over, function(a, b)
    if a.deadline ~= b.deadline then
      return a.deadline < b.deadline
    end
    return a.id < b.id
  end)
  return over
end

-- A run ends completely, even if it has more riders than the call may apply.
local function expire(q, left)
  local over, ended, count = expired(q, left), {}, 0
  while count < #over and left > 0 do
    count = count + 1
    local m = over[count]
    m.run = runs.riders(q, m)
    local some = 1 + #m.run
    ended[m.token], left = (ended[m.token] or 0) + some, left - some
    q.counters[N.leases_expired] = q.counters[N.leases_expired] + 1
  end
  for token, some in pairs(ended) do
    end_some(q, token, some)
  end
  for i = 1, count do
    runs.part(q, over[i].run)
    if q.watched then
      events.happened(q, 'lease_expired', over[i], over[i].token)
    end
    ran_out(q, over[i])
    behind.move(q)
  end
  return math.max(left, 0)
end

-- The number that the call may still apply; the others stay in the set.
local function take_due(q, letter, left)
  local found = due_before(q, letter, 2 * MAX_DUE)
  local ids, members = {}, {}
  for i = 1, math.min(#found, left) do
    ids[i], members[i] = found[i], letter .. found[i]
  end
  bulk('ZREM', q.due, members)
  return ids
end

local function end_backoffs(q, left)
  local places = take_due(q, 'b', left)
  for _, m in ipairs(messages_at(q, places)) do
    if q.watched then
      events.happened(q, 'due', m)
    end
    make_ready(q, m)
  end
  q.counters[N.backing_off] = q.counters[N.backing_off] - #places
  return left - #places
end

-- A delayed message takes its sequence now, behind everything put before (clause 12).
local function end_delays(q, left)
  local ids = take_due(q, 'd', left)
  local c = q.counters
  local messages = messages_at(q, ids)
  look_at_lanes(q, messages)
  for _, m in ipairs(messages) do
    if m.extras then
      m.extras.LATEST = nil
    end
    local number = draw(q, N.seq)
    c[N.delayed] = c[N.delayed] - 1
    if q.watched then
      events.happened(q, 'due', m)
    end
    if not behind.is_parked_or_gone(q, m, number) then
      behind.place_anew(q, m, number, c[N.unsettled] - c[N.delayed] - c[N.parked] - 1)
    end
    behind.move(q)
  end
  return left - #ids
end

-- Readies messages that earlier calls could not.
local function ready_late(q)
  local c = q.counters
  if c[N.late] > 0 then
    local places = redis_call('LPOP', q.late, q.readied)
    c[N.late] = c[N.late] - #places
    for _, m in ipairs(messages_at(q, places)) do
      -- It may have been cancelled.
      if m and not m.gone and m.state == 'W' and m.blocked == 0 then
        q.readied = q.readied - 1
        make_ready(q, m)
      end
    end
  end
end

-- Messages that a resumed key held become ready again.
function pauses.take_back(q)
  local c = q.counters
  while q.steps > 0 and c[N.returning] > 0 do
    local list = name_of(q, 'back:' .. redis_call('LINDEX', q.back, 0))
    local places = redis_call('LPOP', list, q.steps)
    for _, m in ipairs(messages_at(q, places or {})) do
      q.steps = q.steps - 1
      if m and not m.gone and m.state == 'P' then
        make_ready(q, m)
      end
    end
    if redis_call('EXISTS', list) == 0 then
      redis_call('LPOP', q.back)
      c[N.returning] = c[N.returning] - 1
    end
  end
end

-- Forgets the replies of consumers that have been silent for this long, some per call.
local function forget_replies(q)
  local silent = redis_call('ZRANGEBYSCORE', q.ko, '-inf', digits(q.now - KEPT_REPLY), 'LIMIT', 0, MAX_DUE)
  local fields, gone, scores = {}, {}, {}
  for i = 1, #silent do
    fields[i] = 'k' .. silent[i]
  end
  local all = fetch(q.c, fields)
  for i = 1, #silent do
    local at = all[i] and string_match(all[i], '^%d+ (%d+)')
    if at and to_number(at) + KEPT_REPLY > q.now then
      -- It has called since.
      scores[#scores + 1], scores[#scores + 2] = at, silent[i]
    else
      del_field(q, fields[i])
      gone[#gone + 1] = silent[i]
    end
  end
  q.forgot = true
  bulk('ZREM', q.ko, gone)
  bulk('ZADD', q.ko, scores)
  local first = redis_call('ZRANGE', q.ko, 0, 0, 'WITHSCORES')[2]
  q.counters[N.kept_due] = first and to_number(first) + KEPT_REPLY or NEVER
end

local function apply_due(q)
  local c = q.counters
  if c[N.kept_due] <= q.now then
    forget_replies(q)
  end
  if c[N.rare] > 0 and c[N.late] + c[N.unfinished] + c[N.opening] + c[N.returning] > 0 then
    ready_late(q)
    go_on(q)
    open_gates(q)
    pauses.take_back(q)
  end
  q.moves, q.moved_keys = MOST_MOVED, MAX_BATCH_KEYS
  behind.move(q)
  local left = MAX_DUE
  if c[N.due] <= q.now then
    -- Due messages of one kind make none of another kind due at once.
    local kinds = kinds_due(q)
    left = kinds.a and expire(q, left) or left
    left = kinds.b and end_backoffs(q, left) or left
    if left > 0 and kinds.d then
      left = end_delays(q, left)
    end
    if q.slots and c[N.timed] > 0 and (kinds.n or kinds.k) then
      slots.open(q, kinds.n and take_due(q, 'n', MAX_DUE) or NONE, kinds.k and take_due(q, 'k', MAX_DUE) or NONE)
    end
    local first = redis_call('ZRANGE', q.due, 0, 0, 'WITHSCORES')[2]
    c[N.due] = first and to_number(first) or NEVER
  end
  if c[N.rare] > 0 then
    if left > 0 and (c[N.dead_due] <= q.now or c[N.dead_mark] > q.now) then
      letters.expire(q, left)
    end
    expire_results(q)
    rates.expire(q)
  end
end
