-- Leasing: the lease that a call gets, and its reply.

local forget = dedup.forget
local COUNT, tell_plain = forms.COUNT, forms.tell_plain

-- The µs until something falls due that no outside call causes; '' for never.
local function falls_due(q)
  local c = q.counters
  if c[N.late] + c[N.unfinished] + c[N.opening] + c[N.returning] + c[N.swept] > 0 then
    return '0'
  end
  if q.slots then
    slots.write_openings(q)
  end
  local first = redis_call('ZRANGE', q.due, 0, 0, 'WITHSCORES')[2]
  c[N.due] = first and to_number(first) or NEVER
  -- A duration, because the caller does not know this clock.
  return first and digits(math.max(0, to_number(first) - q.now)) or ''
end

-- The same for a caller that asks for work.
local function next_due(q, kind)
  local c = q.counters
  if c[N.sealed] > 0 and c[N.unsettled] == 0 then
    -- Even if shut keys are still to be swept.
    return 'sealed'
  elseif c[N.halted] == 0 and ready_count(c, kind) > 0 then
    return '0'
  end
  return falls_due(q)
end

-- Leases a message: its part of the reply after `at`. Answers the end.
local function lease_one(q, m, token, reply, at)
  local exclusive, shared, rides = m.exclusive, m.shared, m.state == 'Y'
  if not rides then
    m.state = 'L'
  end
  m.token = token
  changed(q, m)
  reply[at + 1] = m.id
  reply[at + 2] = m.id == m.place and '' or m.place
  reply[at + 3] = (rides and '+' or '') .. (m.extras and m.extras.QUIET and '-' or '') .. attempt_of(m)
  reply[at + 4] = payload_of(q, m)
  reply[at + 5], reply[at + 6] = tostring(#exclusive), tostring(#shared)
  at = at + 6
  for k = 1, #exclusive do
    reply[at + k] = exclusive[k]
  end
  at = at + #exclusive
  for k = 1, #shared do
    reply[at + k] = shared[k]
  end
  return at + #shared
end

-- Whether all these records are of ready, plain messages with room for their limit names, and a lease may have
-- that many keys: those records, and whether any of them waited in line. Their bytes always fit: a plain message has at most APART.
local function all_plain(q, records)
  local grouped = q.counters[N.grouped] > 0
  local keys, limited, waited, plain = 0, 0, 0, records
  for i = 1, #records do
    local text = records[i]
    if not text then
      return nil
    end
    local state, flags, high, low = string_byte(text, 1, 4)
    -- 'R', and flags of 0.
    if state ~= 82 or flags ~= 48 then
      local waits = state == 65
      if state == 65 and flags == 49 and high == LIMITED_FLAG then
        -- 'A', for its only name.
        text = 'R' .. string_sub(text, 3)
        plain = waited > 0 and plain or { table_unpack(records, 1, i - 1) }
        waited = waited + 1
        state, flags, high, low = string_byte(text, 1, 4)
      end
      local last = 4 + high * 256 + low
      if state ~= 82 or flags ~= LIMITED_FLAG and flags ~= GROUPED_FLAG then
        return nil
      elseif flags == LIMITED_FLAG then
        limited = limited + 1
        slots.named[limited], slots.waited[limited] = string_sub(text, 5, last), waits
      end
      high, low = string_byte(text, last + 1, last + 2)
    end
    if waited > 0 then
      plain[i] = text
    end
    keys = keys + high * 256 + low
  end
  if keys > MAX_BATCH_KEYS or limited > 0 and (grouped or not slots.take_plainly(q, limited, waited)) then
    return nil
  end
  return plain, waited > 0
end

-- The first messages that were moved in this call, if nothing comes before them.
local function pop_moved(q, half, halves, wanted)
  local c, moved, count = q.counters, slots.moved_now(q, half.moved.kind), wanted.count
  for i = 1, #halves do
    local other = halves[i]
    if other ~= half and c[other.moves] > 0 then
      return nil
    elseif moved and c[other.lists] > 0 then
      local last = 2 * count
      if #moved < last or moved[last - 1] > 0 or moved[last - 1] == 0 and moved[last] > redis_call('LINDEX', q[other.list], 0) then
        return nil
      end
    end
  end
  if not moved then
    return nil
  end
  local places = {}
  for i = 1, math.min(count, #moved / 2) do
    places[i] = moved[2 * i]
  end
  slots.take_moved(q, half.moved.kind, #places)
  return places, fetch(q.c, places), half.moved
end

-- Messages from the only list that has any, and their records; nil if it is not as simple as that.
local function pop_plainly(q, wanted)
  local c = q.counters
  if c[N.rare] > 0 and (c[N.halted] + c[N.paused] > 0 or c[N.grouped] == 0 and c[N.rk] + c[N.ru] > 0)
    or next(q.messages) ~= nil then
    return nil
  end
  local only, halves = nil, KINDS[wanted.kind]
  if c[N.rare] > 0 and c[N.grouped] > 0 then
    if ready_count(c, wanted.kind) == 0 then
      return nil
    end
    local places, records, chosen = turns.pop_plainly(q, wanted)
    if places then
      return places, records, chosen
    end
    local all
    places, all = turns.pop(q, wanted.kind, wanted.count)
    return places, fetch(q.c, places), all
  end
  for i = 1, #halves do
    if c[N.gated] > 0 and c[halves[i].moves] > 0 then
      return pop_moved(q, halves[i], halves, wanted)
    end
  end
  for i = 1, #halves do
    local half = halves[i]
    if c[half.lists] > 0 then
      if only then
        return nil
      end
      only = half.listed
    end
  end
  if not only then
    return nil
  end
  local places = redis_call('LPOP', q[only.name], wanted.count)
  c[only.count] = c[only.count] - #places
  return places, fetch(q.c, places), only
end

-- Four digits of what is small.
local FOUR = {}
local function four(number)
  local text = FOUR[number]
  if not text then
    text = string_format('%04d', number)
    FOUR[number] = text
  end
  return text
end

-- The lease itself, in the parts that are alike; `how` is p for plain messages, s for a suspect one, or g. Answers the token.
local function enter_lease(q, consumer, wanted, places, reply, how)
  local c, count, at, ends = q.counters, #places, #reply, q.now + wanted.duration
  local token, deadline = draw(q, N.fence), digits(ends)
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = token, deadline, '', COUNT[count] or tostring(count)
  set_field(q, 't' .. token,
    q.stamp .. deadline .. four(count) .. four(#consumer) .. how .. consumer .. table_concat(places))
  redis_call('ZADD', q.due, deadline, 'a' .. token)
  if ends < c[N.due] then
    c[N.due] = ends
  end
  c[N.leased], c[N.leases] = c[N.leased] + count, c[N.leases] + count
  return token, deadline
end

-- Notes leased messages, each a message or the record of a plain one.
local function tell_leases(q, consumer, token, places, found)
  for i = 1, #places do
    local m = found[i]
    if type(m) == 'string' then
      events.plainly(q, 'lease', places[i], token, consumer, (plain_keys(m, 2)))
    else
      events.note(q, 'lease', m.id, attempt_of(m), token, consumer, '', m.exclusive, m.shared)
    end
  end
end

-- Leases plain messages. Answers the reply in its short form. `written`: what their records are from now on.
local function grant_plainly(q, consumer, wanted, places, records, reply, written)
  local token, deadline = enter_lease(q, consumer, wanted, places, reply, 'p')
  local at, sets, n = #reply, SETS, q.sets
  for i = 1, #places do
    local place = places[i]
    sets[n + 1], sets[n + 2] = 'm' .. place, token
    n = n + 2
    if written then
      sets[n + 1], sets[n + 2] = place, records[i]
      n = n + 2
    end
    at = tell_plain(place, records[i], reply, at)
  end
  q.sets = n
  if q.watched then
    tell_leases(q, consumer, token, places, records)
  end
  return 'l' .. token .. ' ' .. deadline .. ' '
end

-- Answers whether any message was leased, and the reply in its short form if all were plain.
local function grant(q, consumer, wanted, reply)
  if not untouched(q) then
    flush_ready(q)
  end
  if q.turns and q.slots then
    slots.refresh(q)
  end
  local popped, records, only = pop_plainly(q, wanted)
  local plain, written
  if popped and #popped > 0 and not only.is_cut then
    plain, written = all_plain(q, records)
  end
  if only and only.is_plain then
    if plain then
      turns.keep_plainly(q, only, #popped)
    else
      popped, records, only = nil, nil, nil
    end
  end
  if plain then
    return true, grant_plainly(q, consumer, wanted, popped, plain, reply, written)
  end
  local at = #reply
  local taken, places, alone = take_ready(q, wanted, popped, records, only)
  local count = #taken
  if count == 0 then
    forget(q, MAX_DUE)
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = '', '', next_due(q, wanted.kind), '0'
    return false
  end
  local token = enter_lease(q, consumer, wanted, places, reply, alone and 's' or 'g')
  if q.watched then
    tell_leases(q, consumer, token, places, taken)
  end
  if alone then
    reply[at + 3] = 'alone'
  end
  at = at + 4
  for i = 1, count do
    local m = taken[i]
    if type(m) == 'string' then
      at = forms.lease_plain(q, places[i], m, token, reply, at)
    else
      at = lease_one(q, m, token, reply, at)
    end
  end
  return true
end
