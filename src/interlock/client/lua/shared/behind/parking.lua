-- Parked messages: their record is under their id, in the state K, and they are in the list of one key. A message that comes
-- into its places, or back to them, may be parked instead, or go with a held message at once.
--
-- Its extras: ORDER, its sequence when it was parked for the first time; PARKED, how often it was; UNDER, the key; SINCE,
-- the time; SEQUENCE, its last place, if that is not its id.

local lane_of, is_single, unlink = lanes.of, lanes.is_single, lanes.unlink

-- Adds a parked message to the list of a key.
local function enter_list(q, m, key)
  extra(m, 'UNDER', key)
  changed(q, m)
  redis_call('ZADD', name_of(q, 'pb:' .. key), digits(m.extras.ORDER), m.id)
end

local function leave_list(q, m)
  local c, key = q.counters, m.extras.UNDER
  local list = name_of(q, 'pb:' .. key)
  redis_call('ZREM', list, m.id)
  local first = c[N.swept] > 0 and redis_call('ZSCORE', q.po, key)
  if first and to_number(first) == m.extras.ORDER then
    local next = redis_call('ZRANGE', list, 0, 0, 'WITHSCORES')[2]
    if next then
      redis_call('ZADD', q.po, next, key)
    else
      redis_call('ZREM', q.po, key)
      c[N.swept] = c[N.swept] - 1
    end
  end
end

-- A message that has no place, or has just left those of a sequence, is parked for a key.
function behind.park(q, m, key, sequence)
  local c = q.counters
  extra(m, 'ORDER', m.extras and m.extras.ORDER or to_number(sequence))
  extra(m, 'PARKED', (m.extras.PARKED or 0) + 1)
  extra(m, 'SINCE', q.now)
  if sequence ~= m.id then
    -- al has it as well, for a scan that began before: see scan.lua.
    extra(m, 'SEQUENCE', sequence)
    set(hash(q, 'al'), m.id, m.id)
  end
  m.state, m.blocked = 'K', 0
  c[N.parked], c[N.parked_bytes] = c[N.parked] + 1, c[N.parked_bytes] + size_of(m)
  enter_list(q, m, key)
  redis_call('ZADD', q.pa, digits(m.extras.ORDER), m.id)
  if q.watched then
    events.happened(q, 'parked', m)
  end
end

-- A message leaves its places without being settled. Answers its sequence.
function behind.leave_places(q, m)
  local sequence = m.place
  if m.state == 'R' then
    withdraw(q, m)
    -- Its entry in a list is skipped, for the record there is another one's or says that it is parked.
    m.gone = false
  elseif m.state == 'A' then
    slots.leave(q, m)
  end
  m.state = 'K'
  unlink(q, m)
  if q.counters[N.barriers] > 0 then
    barriers.left_behind(q, m)
  end
  if sequence ~= m.id then
    del_field(q, sequence)
    q.messages[sequence], q.messages[m.id] = false, m
    m.place = m.id
    extra(m, 'ID', nil)
  end
  changed(q, m)
  return sequence
end

-- A parked message is taken out of its list.
function behind.leave_parking(q, m)
  local c = q.counters
  leave_list(q, m)
  redis_call('ZREM', q.pa, m.id)
  c[N.parked], c[N.parked_bytes] = c[N.parked] - 1, c[N.parked_bytes] - size_of(m)
end

-- A message under its id takes a place that is another number; `before` others are unsettled and have a place.
function behind.place_anew(q, m, number, before)
  local c, id = q.counters, m.id
  extra(m, 'ID', id)
  if not m.extras.SEQUENCE then
    c[N.aliases] = c[N.aliases] + 1
  end
  m.extras.SEQUENCE, m.extras.UNDER, m.extras.SINCE = nil, nil, nil
  m.place = number
  q.messages[number], q.messages[id] = m, false
  del_field(q, id)
  set(hash(q, 'al'), id, number)
  place(q, m, before)
end

-- Whether a message at the end of a lane would wait for another one there.
local function would_wait(q, key, mode)
  local text = get(hash(q, 'l'), key)
  if not text or mode == 'x' then
    return text
  elseif is_single(text) then
    return #text ~= 17
  end
  local lane = lane_of(q, text)
  return lane.kind == 'X' or lane.first
end

local function holds_back(q, key, mode, order)
  if behind.is_paused(q, key) or behind.is_stuck(q, key) and would_wait(q, key, mode) then
    return true
  end
  local first = behind.first_parked(q, key)
  return first and to_number(first) < order
end

-- The reason for which a message may not take its places: a key for which it is parked, or a held message with which it goes.
local function obstacle(q, m, sequence)
  local value = behind.value(q, m)
  if value == 'wait' or value == 'park' and behind.was_handed_out(m) then
    return nil
  end
  local order = m.extras and m.extras.ORDER or to_number(sequence)
  for mode, keys in ipairs({ m.exclusive, m.shared }) do
    mode = mode == 1 and 'x' or 's'
    for _, key in ipairs(keys) do
      if value == 'park' then
        if holds_back(q, key, mode, order) then
          return key
        end
      else
        local held = would_wait(q, key, mode) and behind.held_on(q, key)
        if held and (value == 'cancel' or behind.has_dead_room(q)) then
          return nil, held
        end
      end
    end
  end
end

-- A message is buried or cancelled with a held one.
function behind.go_with(q, m, held)
  local text = 'behind message ' .. held.id
  if behind.value(q, m) == 'cancel' then
    outcome.cancel(q, m, text)
    return
  end
  outcome.add_error(q, m, text)
  if q.watched then
    events.happened(q, 'dead', m, nil, text)
  end
  outcome.bury(q, m)
end

-- A message that is new or due would take the places of a sequence. Answers whether it is parked, buried or cancelled.
function behind.is_parked_or_gone(q, m, sequence)
  if not may_leave(q.counters) or not behind.has_shut(q.counters) then
    return false
  end
  local key, held = obstacle(q, m, sequence)
  if key then
    behind.park(q, m, key, sequence)
    if sequence ~= m.id then
      q.counters[N.aliases] = q.counters[N.aliases] + 1
    end
  elseif held then
    m.state = false
    behind.go_with(q, m, held)
  end
  return key or held
end

-- A parked message whose key is open takes its places, or is parked for another key.
function behind.bring_back(q, m)
  local c = q.counters
  local key, held = obstacle(q, m)
  if key then
    leave_list(q, m)
    enter_list(q, m, key)
    return
  end
  behind.leave_parking(q, m)
  if held then
    m.state = false
    behind.go_with(q, m, held)
    return
  end
  local number = draw(q, N.seq)
  if q.watched then
    events.happened(q, 'returned', m)
  end
  behind.place_anew(q, m, number, c[N.unsettled] - c[N.delayed] - c[N.parked] - 1)
end
