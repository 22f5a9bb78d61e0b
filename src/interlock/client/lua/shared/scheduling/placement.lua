-- Messages come in: they take their places in all their lanes at once (clause 4), or wait for their time.

local short_node, link = lanes.short_node, lanes.link
local remember = dedup.remember
local gate, place_barrier = barriers.gate, barriers.place

-- The place is the message's sequence. `before` others are unsettled and have a place.
local function place(q, m, before)
  local blocked = 0
  if m.barrier then
    blocked = place_barrier(q, m, before) and 0 or 1
    m.state = 'W'
  else
    blocked = link(q, m.place, m.exclusive, 'x', link(q, m.place, m.shared, 's', 0))
    m.state = 'W'
    if q.counters[N.barriers] > 0 and gate(q, m) then
      m.state, blocked = 'G', blocked + 1
    end
  end
  m.blocked = blocked
  if blocked == 0 then
    make_ready(q, m, true)
  else
    changed(q, m)
  end
end

local function fall_due_at(q, time, member)
  redis_call('ZADD', q.due, digits(time), member)
  q.counters[N.due] = math.min(q.counters[N.due], time)
end

-- A long payload is stored apart from the record.
local function store_payload(q, m, payload)
  m.outside, m.tail = #payload > APART, payload
  if m.outside then
    redis_call('HSET', q.y, m.id, payload)
    m.tail = tostring(#payload)
  end
end

-- Gives a new message its id, and its place unless it is delayed.
local function enter(q, m)
  local c = q.counters
  m.id = draw(q, N.seq)
  m.place = m.id
  c[N.puts], c[N.unsettled], c[N.bytes] = c[N.puts] + 1, c[N.unsettled] + 1, c[N.bytes] + #m.payload
  store_payload(q, m, m.payload)
  if m.limit then
    c[N.gated] = c[N.gated] + 1
  end
  if m.group then
    turns.enter(q, m.group, turns.half_of(m), turns.rank_of(m))
  end
  if m.coalesce then
    coalescing.enter(q, m)
  end
  local extras = m.extras
  if extras and extras.DEDUP then
    remember(q, extras.DEDUP, m.id)
  end
  if extras and extras.BEHIND and extras.BEHIND ~= 'wait' then
    c[N.own] = c[N.own] + 1
  end
  if extras and extras.RUN then
    c[N.running] = c[N.running] + 1
  end
  if q.watched then
    events.happened(q, 'put', m)
  end
  if m.delay > 0 then
    m.state = 'D'
    c[N.delayed] = c[N.delayed] + 1
    fall_due_at(q, q.now + m.delay, 'd' .. m.id)
    changed(q, m)
  elseif m.is_stopped or not behind.is_parked_or_gone(q, m, m.id) then
    place(q, m, c[N.unsettled] - c[N.delayed] - c[N.parked] - 1)
  end
  return m.id
end

-- Gives a message the payload of a later put with its name, and the first attempt again. Everything else stays, so that
-- it keeps its place.
function coalescing.replace(q, m, put)
  local c, extras, payload = q.counters, m.extras, put.payload
  c[N.coalesced], c[N.bytes] = c[N.coalesced] + 1, c[N.bytes] + #payload - size_of(m)
  if m.outside and #payload <= APART then
    redis_call('HDEL', q.y, m.id)
  end
  if m.state == 'K' then
    c[N.parked_bytes] = c[N.parked_bytes] + #payload - size_of(m)
  end
  -- It keeps its places all the same.
  extras.RETURNED = extras.RETURNED or behind.was_handed_out(m) and true or nil
  m.text = nil
  store_payload(q, m, payload)
  extras.ATTEMPT, extras.ERROR, extras.ALONE, extras.SILENT = nil, nil, nil, nil
  extras.REVISION = (extras.REVISION or 0) + 1
  local span = math.max(extras.RESULT or 0, put.extras.RESULT or 0)
  extras.RESULT = span > 0 and span or nil
  changed(q, m)
  if m.state == 'D' and put.debounce then
    local due = q.now + put.debounce
    fall_due_at(q, extras.LATEST and math.min(due, extras.LATEST) or due, 'd' .. m.id)
  end
  if q.watched then
    events.happened(q, 'replaced', m)
  end
end

-- As enter(), of a plain message whose keys nobody holds (see plain.lua). Answers nil for any other.
local function enter_plain(q, m)
  local payload, keys, c = m.payload, m.exclusive, q.counters
  local count = #keys
  if not m.plain or #payload > APART or c[N.barriers] > 0 or c[N.behind] > 0 and behind.has_shut(c) then
    return nil
  end
  local l = hash(q, 'l')
  local values, written = l.values, l.changed
  for k = 1, count do
    -- Known to the call: the put has read it.
    if values[keys[k]] then
      return nil
    end
  end
  local id = draw(q, N.seq)
  local node, named = short_node(id), {}
  for k = 1, count do
    local key = keys[k]
    values[key] = node
    written[#written + 1] = key
    named[k] = two(#key) .. key
  end
  c[N.lanes] = c[N.lanes] + count
  m.id = id
  written = q.written
  written[#written + 1] = id
  written[#written + 1] = 'R0' .. two(count) .. (count == 1 and named[1] or table_concat(named)) .. payload
  written = count > 0 and q.pushed.fk or q.pushed.fu
  written[#written + 1] = id
  c[N.puts], c[N.unsettled], c[N.bytes] = c[N.puts] + 1, c[N.unsettled] + 1, c[N.bytes] + #payload
  if q.watched then
    events.plainly(q, 'put', id, '', '', keys)
  end
  return id
end

-- The reason to refuse this many new messages and bytes, or nil. The check for room comes last.
local function too_large(q, count, bytes)
  local size, most = option(q, 'MAXSIZE'), option(q, 'MAXBYTES')
  if size > 0 and count > size then
    return string_format('%d messages; MAXSIZE is %s', count, digits(size))
  elseif most > 0 and bytes > most then
    return string_format('%s bytes; MAXBYTES is %s', digits(bytes), digits(most))
  end
end

local function no_room(q, count, bytes)
  local c, size, most = q.counters, option(q, 'MAXSIZE'), option(q, 'MAXBYTES')
  if size > 0 and c[N.unsettled] + count > size then
    return string_format('%s messages are unsettled; MAXSIZE is %s', digits(c[N.unsettled]), digits(size))
  elseif most > 0 and c[N.bytes] + bytes > most then
    return string_format('%s bytes are unsettled; MAXBYTES is %s', digits(c[N.bytes]), digits(most))
  end
end
