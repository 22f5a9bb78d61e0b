-- Sweeps: the messages that wait on a key leave its lane, the last one first, and the first that stays ends the sweep. So
-- nothing in the lane passes anything that is there on this key. And returns: messages parked for open keys take new places,
-- in the order in which they first had one. A call moves a limited number of messages; the next calls go on.

-- Number of messages that one call moves; they have at most MAX_BATCH_KEYS keys together.
local MOST_MOVED = 1000

local lane_of = lanes.of
-- States of messages that are queued.
local QUEUED = 'RPAWG'

-- The last message of a lane, if it leaves that, and the held message with which it goes; nil if it stays. `dying` is
-- going to be held.
local function leaver(q, key, dying)
  local text = get(hash(q, 'l'), key)
  if not text then
    return nil
  end
  local lane = lane_of(q, text)
  local m = message_at(q, string_sub(lane.tail, 2))
  if not string_find(QUEUED, m.state, 1, true) then
    return nil
  end
  local value, waits = behind.value(q, m), lane.first or lane.kind == 'X' and lane.depth > 1
  if value == 'park' then
    local shut = behind.is_paused(q, key) or waits and behind.is_stuck(q, key)
    local stays = behind.was_handed_out(m) or (m.extras and m.extras.PARKED or 0) >= MOST_TIMES
    return not dying and shut and not stays and behind.may_park(q, 1, size_of(m)) and m
  end
  local held = value ~= 'wait' and waits and (dying or behind.held_on(q, key))
  if held and (value == 'cancel' or behind.has_dead_room(q, dying and 1)) then
    return m, held
  end
end

local function has_moves(q)
  return q.moves > 0 and q.moved_keys > 0
end

local function count_move(q, m)
  q.moves, q.moved_keys = q.moves - 1, q.moved_keys - #m.exclusive - #m.shared
end

-- Whether one of a message's keys is to be swept.
local function is_swept(q, m)
  local keys = behind.keys_of(m)
  for first = 1, #keys, CHUNK do
    local found = redis_call('ZMSCORE', q.sw, table_unpack(keys, first, math.min(first + CHUNK - 1, #keys)))
    for i = 1, #found do
      if found[i] then
        return true
      end
    end
  end
  return false
end

-- Those with a key that was swept become dead letters, once all of their keys were.
local function end_dying(q, key)
  if q.counters[N.dying] == 0 then
    return
  end
  local places = redis_call('ZRANGEBYSCORE', name_of(q, 'st:' .. key), AT_DYING, AT_DYING)
  for _, m in ipairs(messages_at(q, places)) do
    if m and not is_swept(q, m) then
      if q.watched then
        local text = m.dies and m.dies.text or string_match(m.extras.ERROR or '', '^[^\30\31]*')
        events.happened(q, 'dead', m, m.dies and m.dies.token, text)
      end
      outcome.end_hold(q, m)
      outcome.bury(q, m)
    end
  end
end

local function sweep(q, key)
  while has_moves(q) do
    local m, held = leaver(q, key)
    if not m then
      redis_call('ZREM', q.sw, key)
      q.counters[N.swept] = q.counters[N.swept] - 1
      end_dying(q, key)
      return
    end
    count_move(q, m)
    if held then
      behind.go_with(q, m, held)
    else
      behind.park(q, m, key, behind.leave_places(q, m))
    end
  end
end

-- Another value of the queue: the shut keys are swept in the order of their bytes.
local function sweep_next(q)
  local c = q.counters
  while true do
    local key = redis_call('ZPOPMIN', q.sk)[1]
    if not key then
      redis_call('DEL', q.sc)
      c[N.swept] = c[N.swept] - 1
      return
    elseif behind.is_shut(q, key) then
      redis_call('SET', q.sc, key)
      behind.sweep(q, { key })
      q.moves = q.moves - 1
      return
    end
  end
end

local function bring_back(q)
  while has_moves(q) do
    local key = redis_call('ZRANGE', q.po, 0, 0)[1]
    if not key then
      return
    end
    local m = message_at(q, redis_call('ZRANGE', name_of(q, 'pb:' .. key), 0, 0)[1])
    count_move(q, m)
    behind.bring_back(q, m)
  end
end

-- Goes on with all that is left, as far as the call may.
function behind.move(q)
  local c = q.counters
  if c[N.rare] == 0 then
    return
  end
  while c[N.swept] > 0 and has_moves(q) do
    local key = redis_call('ZRANGE', q.sw, 0, 0)[1]
    if key then
      sweep(q, key)
    elseif redis_call('EXISTS', q.sc) == 1 then
      sweep_next(q)
    else
      bring_back(q)
    end
  end
end

-- A message that would be a dead letter: where others go with it, it is held until they are gone. Answers what it became;
-- nil if none goes with it.
function behind.dies_later(q, m, token, text)
  if m.barrier or not may_leave(q.counters) then
    return nil
  end
  local goes = false
  for _, key in ipairs(behind.keys_of(m)) do
    goes = goes or leaver(q, key, m)
  end
  if not goes then
    return nil
  end
  outcome.become_held(q, m)
  behind.become_dying(q, m)
  m.dies = { token = token, text = text }
  behind.move(q)
  if m.gone then
    return 'DEAD'
  end
  m.dies = nil
  if q.watched then
    events.happened(q, 'hold', m, token, text)
  end
  return 'HELD'
end

-- The queue has another value: it counts for what waits.
function behind.configure(q, value)
  local c = q.counters
  for number, word in pairs(behind.WORDS) do
    if word == value then
      c[N.behind] = number
    end
  end
  flush(q, hash(q, 'ck'))
  redis_call('DEL', q.sk)
  for part, counter in pairs({ pk = N.paused, ck = N.stuck }) do
    local keys, entries = c[counter] > 0 and redis_call('HKEYS', q[part]) or NONE, {}
    for i = 1, #keys do
      entries[2 * i - 1], entries[2 * i] = 0, keys[i]
    end
    bulk('ZADD', q.sk, entries)
  end
  c[N.swept] = c[N.swept] + 1 - redis_call('EXISTS', q.sc)
  redis_call('SET', q.sc, '')
  behind.move(q)
end
