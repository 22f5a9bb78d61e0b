-- Inserting into lanes and removing from them. A message counts the nodes it waits for; at zero it
-- is ready. So a put and a settlement cost O(keys of the message), however many messages are
-- pending (clause 21).

local lane_of, single, short_node, lane_text = lanes.of, lanes.is_single, lanes.short_node, lanes.text
local note_depth = lanes.note_depth

-- Puts a message at the end of a lane with other messages. Answers whether they block it.
local function link_behind(q, l, text, place, key, mode)
  local lane, node = lane_of(q, text), mode .. place
  local blocked = true
  if lane.depth == 1 then
    q.counters[N.crowded] = q.counters[N.crowded] + 1
  end
  if lane.kind == 'S' and not lane.first then
    if mode == 's' then
      lane.active, blocked = lane.active + 1, false
    else
      lane.first = node
    end
  end
  set(hash(q, 'n'), string_sub(lane.tail, 2) .. key, node)
  set(hash(q, 'v'), place .. key, lane.tail)
  lane.tail, lane.depth = node, lane.depth + 1
  note_depth(q, key, lane.depth, lane.depth)
  set(l, key, lane_text(lane))
  return blocked
end

-- Puts a message at the end of its lanes. Answers the number of nodes it waits for, and `blocked`
-- more.
local function link(q, place, keys, mode, blocked)
  if #keys > 0 then
    local l, node = hash(q, 'l'), mode == 'x' and short_node(place) or 's' .. place
    local values, written, c = l.values, l.changed, q.counters
    for i = 1, #keys do
      local key = keys[i]
      local text = values[key]
      if text == nil then
        text = get(l, key)
      end
      if not text then
        values[key] = node
        written[#written + 1] = key
        c[N.lanes] = c[N.lanes] + 1
      elseif link_behind(q, l, text, place, key, mode) then
        blocked = blocked + 1
      end
    end
  end
  return blocked
end

-- Grants the nodes now in front: appends the places to q.granted. The first one is unlimited,
-- because a message's end must ready the next on each of its keys; only runs of readers have to be
-- limited.
local function grant_front(q, lane, key)
  local free = true
  while lane.first do
    local mode = string_sub(lane.first, 1, 1)
    if lane.active > 0 and mode == 'x' then
      return
    end
    if not free then
      if q.steps == 0 then
        -- Numbered by arrival: the last is the first with which a call continues (clause 20).
        local c = q.counters
        c[N.moved] = c[N.moved] + 1
        if redis_call('ZADD', q.unf, 'NX', c[N.moved], key) == 1 then
          c[N.unfinished] = c[N.unfinished] + 1
        end
        return
      end
      q.steps = q.steps - 1
    end
    free = false
    local place = string_sub(lane.first, 2)
    q.granted[#q.granted + 1] = place
    if mode == 'x' then
      lane.kind, lane.active, lane.first = 'X', 1, nil
      return
    end
    lane.active = lane.active + 1
    lane.first = get(hash(q, 'n'), place .. key) or nil
  end
end

-- Removes a message from a lane, at any position.
local function unlink_one(q, place, key)
  local l = hash(q, 'l')
  local text = get(l, key)
  if single(text) then
    set(l, key, false)
    q.counters[N.lanes] = q.counters[N.lanes] - 1
    return
  end
  local lane = lane_of(q, text)
  local n, v, field = hash(q, 'n'), hash(q, 'v'), place .. key
  local leads = string_sub(lane.head, 2) == place
  local next, previous = get(n, field), not leads and get(v, field)
  if next then
    set(n, field, false)
    set(v, string_sub(next, 2) .. key, previous)
  else
    lane.tail = previous
  end
  if previous then
    set(v, field, false)
    set(n, string_sub(previous, 2) .. key, next)
  else
    lane.head = next
  end
  lane.depth = lane.depth - 1
  note_depth(q, key, lane.depth, lane.depth + 1)
  if lane.depth == 1 then
    q.counters[N.crowded] = q.counters[N.crowded] - 1
  end
  if lane.kind == 'X' then
    if leads then
      lane.kind, lane.active, lane.first = 'S', 0, next
    end
  elseif not lane.first or place < string_sub(lane.first, 2) then
    lane.active = lane.active - 1
  elseif string_sub(lane.first, 2) == place then
    lane.first = next or nil
  end
  grant_front(q, lane, key)
  set(l, key, lane_text(lane))
end

-- One thing less blocks a message.
local function unblock(q, m)
  m.blocked = m.blocked - 1
  changed(q, m)
  if m.blocked > 0 then
    return
  end
  if m.state == 'Y' then
    -- The message before it in its run is settled: see runs.lua.
    m.state, q.counters[N.riding] = 'L', q.counters[N.riding] - 1
    return
  end
  if q.readied == 0 then
    redis_call('RPUSH', q.late, m.place)
    q.counters[N.late] = q.counters[N.late] + 1
    return
  end
  q.readied = q.readied - 1
  make_ready(q, m)
end

local function unblock_granted(q)
  if #q.granted > 0 then
    local places = q.granted
    q.granted = {}
    for _, m in ipairs(messages_at(q, places)) do
      unblock(q, m)
    end
  end
end

local function unlink_from(q, place, keys)
  local l, c = hash(q, 'l'), q.counters
  local values, written = l.values, l.changed
  for i = 1, #keys do
    local key = keys[i]
    local text = values[key]
    if text and single(text) then
      values[key] = false
      written[#written + 1] = key
      c[N.lanes] = c[N.lanes] - 1
    else
      unlink_one(q, place, key)
    end
  end
end

local function unlink(q, m)
  if #m.exclusive > 0 then
    unlink_from(q, m.place, m.exclusive)
  end
  if #m.shared > 0 then
    unlink_from(q, m.place, m.shared)
  end
  if #q.granted > 0 then
    unblock_granted(q)
  end
end

-- Reads the data for inserting or settling these.
local function look_at_lanes(q, messages)
  local keys = {}
  for i = 1, #messages do
    local m = messages[i]
    for k = 1, #m.exclusive do
      keys[#keys + 1] = m.exclusive[k]
    end
    for k = 1, #m.shared do
      keys[#keys + 1] = m.shared[k]
    end
  end
  prefetch(hash(q, 'l'), keys)
end

-- As look_at_lanes(), with the next nodes and the messages that will be freed.
local function look_behind(q, messages)
  look_at_lanes(q, messages)
  local lanes, fields = hash(q, 'l').values, {}
  for i = 1, #messages do
    local m = messages[i]
    for k = 1, #m.exclusive do
      local text = lanes[m.exclusive[k]]
      if text and not single(text) then
        fields[#fields + 1] = m.place .. m.exclusive[k]
      end
    end
    for k = 1, #m.shared do
      local text = lanes[m.shared[k]]
      if text and not single(text) then
        fields[#fields + 1] = m.place .. m.shared[k]
      end
    end
  end
  if #fields > 0 then
    prefetch(hash(q, 'n'), fields)
    local places = {}
    for _, field in ipairs(fields) do
      local node = hash(q, 'n').values[field]
      if node then
        places[#places + 1] = string_sub(node, 2)
      end
    end
    local behind = messages_at(q, places)
    if q.turns then
      turns.look_at(q, behind)
    end
  end
end

-- Continues with the runs of readers that earlier calls left.
local function go_on(q)
  while q.steps > 0 and q.counters[N.unfinished] > 0 do
    local key = redis_call('ZPOPMAX', q.unf)[1]
    q.counters[N.unfinished] = q.counters[N.unfinished] - 1
    local text = get(hash(q, 'l'), key)
    if text and not single(text) then
      local lane = lane_of(q, text)
      grant_front(q, lane, key)
      set(hash(q, 'l'), key, lane_text(lane))
      unblock_granted(q)
    end
  end
end

lanes.link, lanes.unblock, lanes.unlink, lanes.look_at = link, unblock, unlink, look_at_lanes
lanes.look_behind, lanes.go_on = look_behind, go_on
