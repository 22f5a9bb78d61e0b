-- What reading functions tell of messages.

-- The places in front of a lane, which nothing on this key holds up, at most so many.
local function granted_on(q, key, most)
  local text, places = get(hash(q, 'l'), key), {}
  local lane = text and lane_of(q, text)
  if not lane then
    return places
  end
  local node = lane.head
  while node and node ~= lane.first and #places < most do
    places[#places + 1] = string_sub(node, 2)
    if lane.kind == 'X' then
      break
    end
    node = redis_call('HGET', q.n, string_sub(node, 2) .. key)
  end
  return places
end

-- A ready message that is paused waits.
local function state_of(q, m)
  if m.state == 'R' and (q.counters[N.halted] > 0 or paused_key(q, m)) or m.state == 'P' then
    return 'waiting'
  end
  return STATES[m.state]
end

local function append(reply, list)
  for _, value in ipairs(list) do
    reply[#reply + 1] = value
  end
end

-- When a delay or a backoff ends, or it died, else ''.
local function due_of(q, m)
  if m.state == 'X' then
    return m.due
  elseif m.state == 'D' then
    return redis_call('ZSCORE', q.due, 'd' .. m.id)
  elseif m.state == 'B' then
    return redis_call('ZSCORE', q.due, 'b' .. m.place)
  end
  return ''
end

local TOLD = {
  'PRIORITY', 'DEDUP', 'WINDOW', 'BARRIER', 'RESULT', 'QUIET',
  'ATTEMPTS', 'FIRST', 'FACTOR', 'LONGEST', 'JITTER', 'THEN',
}

local function tell(q, m, reply)
  local extras, options = m.extras or NONE, {}
  for _, name in ipairs(TOLD) do
    local value = extras[name]
    if name == 'BARRIER' and m.barrier then
      value = 1
    end
    if value ~= nil then
      options[#options + 1] = name
      options[#options + 1] = type(value) == 'number' and digits(value) or value
    end
  end
  append(reply, {
    m.id, m.id == m.place and '' or m.place, tostring(attempt_of(m)), payload_of(q, m),
    tostring(#m.exclusive), tostring(#m.shared), tostring(#options / 2),
  })
  append(reply, m.exclusive)
  append(reply, m.shared)
  append(reply, options)
  append(reply, { state_of(q, m), due_of(q, m), extras.ERROR or '' })
end

-- A dead letter as messages are told.
local function tell_dead_one(q, id, text, reply)
  local dead = cmsgpack.unpack(text)
  local m = {
    id = id, place = id, state = 'X', due = dead[3], tail = dead.payload, outside = dead.outside,
    barrier = dead.barrier, exclusive = dead.exclusive, shared = dead.shared, extras = dead.extras,
  }
  m.extras.ATTEMPT, m.extras.ERROR = dead[2], dead[1]
  tell(q, m, reply)
  return m
end

local function take_cursor(from)
  local cursor = take(from, 'cursor')
  if #cursor > 20 or not string_find(cursor, '^%d+$') then
    bad(from, 'cursor', 0, 'is no cursor that this queue gives')
  end
  return cursor
end
