-- il1_scan: cursor count [dead|newest|key KEY|delayed KEY|ids ID...|larger ID [STATE]|front ID [STATE]]
-- All unsettled messages in no order, about `count` at a time. Answers the next cursor, then
-- messages. Or the dead letters, in the order of their deaths, or the newest first; the cursor is
-- the last one returned. Or a key's lane in sequence; the cursor is the last one returned: if that
-- is settled, from the front again. Or the delayed messages of a key, the first due first, and then the
-- parked ones. Or the messages with these ids that are larger than the cursor, in the order given; the cursor is the
-- last one returned. Or no messages, only the ids larger than one, in no order: answers the next cursor,
-- the last number of the series, then ids. Or the first ids larger than one, in order: answers the last of them, 0 if no
-- more follow, then ids; or an empty string if only a scan finds them.

local DEAD_ONES = { dead = 'Z', newest = 'ZREV' }
local PARTS = { dead = true, newest = true, key = true, delayed = true, ids = true, larger = true, front = true }
PARTS.told = 'dead, newest, key, delayed, ids or larger'
local IN_STATE = {
  delayed = true, waiting = true, ready = true, leased = true, backing_off = true, held = true, parked = true,
  told = 'a state of unsettled messages',
}

local function scan_dead(q, cursor, count, way)
  local rank = cursor ~= '0' and redis_call(way .. 'RANK', q.xo, cursor)
  if cursor ~= '0' and not rank then
    return { '0' }
  end
  local first = rank and rank + 1 or 0
  local reply, bytes = { '0' }, 0
  description.each_dead(q, first, first + count - 1, function(id, text)
    local _, told = description.tell_dead_one(q, id, text, reply)
    bytes, count = bytes + told, count - 1
    -- A full page does not show whether more follow.
    local full = count == 0 or bytes >= MAX_TOLD
    reply[1] = full and id or '0'
    return full
  end, way)
  return reply
end

-- The message that a cursor names; nil if it does not exist.
local function at_cursor(q, cursor)
  return is_place(cursor) and find(q, cursor) or nil
end

local function scan_key(q, cursor, count, key)
  local reply, bytes = { '0' }, 0
  local last, node = at_cursor(q, cursor), nil
  if last and last.state ~= 'D' and last.state ~= 'K' and description.carries(last, key) then
    node = redis_call('HGET', q.n, last.place .. key)
  else
    local text = get(hash(q, 'l'), key)
    node = text and lanes.of(q, text).head
  end
  while node do
    local place = string_sub(node, 2)
    local m = message_at(q, place)
    bytes, count = bytes + description.tell(q, m, reply), count - 1
    if count == 0 or bytes >= MAX_TOLD then
      -- A full page does not show whether more follow.
      reply[1] = m.id
      return reply
    end
    node = redis_call('HGET', q.n, place .. key)
  end
  return reply
end

-- The delayed messages, and then the parked ones. Leases and backoffs are in the same set as the former; one call examines
-- this many messages without the key.
local function scan_delayed(q, cursor, count, key)
  local reply, bytes, looked_at = { '0' }, 0, 0
  local parked = is_place(cursor) and redis_call('ZRANK', q.pa, cursor)
  for _, set in ipairs(parked and { 'pa' } or { 'due', 'pa' }) do
    local letter = set == 'due' and 'd' or ''
    local rank = is_place(cursor) and redis_call('ZRANK', q[set], letter .. cursor)
    local at = rank and rank + 1 or 0
    repeat
      local members = redis_call('ZRANGE', q[set], at, at + READ_AT_ONCE - 1)
      at = at + #members
      for i = 1, #members do
        if set == 'pa' or string_sub(members[i], 1, 1) == letter then
          local id = string_sub(members[i], #letter + 1)
          local m = message_at(q, id)
          looked_at = looked_at + 1
          if description.carries(m, key) then
            bytes, count = bytes + description.tell(q, m, reply), count - 1
          end
          if count == 0 or bytes >= MAX_TOLD or looked_at == MAX_LOOKED_AT then
            reply[1] = id
            return reply
          end
        end
      end
    until #members < READ_AT_ONCE
  end
  return reply
end

local function take_ids(from, cursor)
  local ids, i = {}, 0
  repeat
    i = i + 1
    if i > MAX_BATCH then
      refuse('TOOBIG', '%s: more than %d ids', from.called, MAX_BATCH)
    end
    local id = take.number(from, 'ids[%d]', i)
    if to_number(id) > to_number(cursor) then
      ids[#ids + 1] = id
    end
  until not more(from)
  return ids
end

local function scan_ids(q, count, ids)
  local reply, bytes = { '0' }, 0
  for first = 1, #ids, READ_AT_ONCE do
    local some = { table_unpack(ids, first, math.min(first + READ_AT_ONCE - 1, #ids)) }
    local found = find_all(q, some)
    for i = 1, #some do
      if found[i] then
        bytes, count = bytes + description.tell(q, found[i], reply), count - 1
        if count == 0 or bytes >= MAX_TOLD then
          -- A full page does not show whether more follow.
          reply[1] = some[i]
          return reply
        end
      end
    end
  end
  return reply
end

-- Cursors of al begin here; those of c are smaller than the table of a hash.
local MOVED = 4503599627370496

-- Shows all unsettled messages: `look(id, m)`, where m is nil if it is not `needed` and did not have to be
-- read. Answers the next cursor. A message that falls due between two pages leaves its place for one that
-- may have been scanned. So al is scanned after c: by then it is in al, under its id, and stays there when it is parked.
local function each_message(q, cursor, count, needed, look)
  local at, aliases = to_number(cursor), q.counters[N.aliases] > 0
  if at < MOVED then
    -- A message is not the only field that c has for it.
    local after, full = description.each_field(q, cursor, 2 * count, function(field, text)
      if is_place(field) then
        local m = (aliases or needed) and open_record(q, field, text)
        if not m or m.id == field and not (m.extras and m.extras.SEQUENCE) then
          return look(field, m)
        end
      end
    end)
    if after ~= '0' or not aliases then
      return after
    end
    if full then
      return digits(MOVED)
    end
    at = MOVED
  end
  local after = description.each_field(q, digits(at - MOVED), 2 * count, function(id, place)
    return look(id, needed and message_at(q, place))
  end, q.al)
  return after == '0' and after or digits(MOVED + to_number(after))
end

local function scan_larger(q, cursor, count, least, state)
  local c = q.counters
  local reply = { '', c[N.unsettled] > 0 and digits(c[N.seq]) or '0' }
  reply[1] = each_message(q, cursor, count, state, function(id, m)
    if to_number(id) > least and (not state or description.state_of(q, m) == state) then
      reply[#reply + 1] = id
    end
  end)
  return reply
end

register('scan', function(q, from)
  local cursor = description.take_cursor(from)
  local count = take.whole(from, 1, MAX_BATCH, 'count')
  local part = more(from) and take.word(from, PARTS, 'what')
  local key = (part == 'key' or part == 'delayed') and take.text(from, MAX_KEY_BYTES, 'key')
  if key == '' then
    bad(from, 'key', 0, 'is empty')
  end
  local ids = part == 'ids' and take_ids(from, cursor)
  local least = (part == 'larger' or part == 'front') and take.whole(from, 0, MAX_NUMBER, 'id')
  local state = least and more(from) and take.word(from, IN_STATE, 'state')
  take_end(from)
  look(q)
  if ids then
    return scan_ids(q, count, ids)
  elseif part == 'front' then
    local first = description.first_ids(q, count, least, state)
    return { first and (first[count] or '0') or '', table_unpack(first or NONE) }
  elseif least then
    return scan_larger(q, cursor, count, least, state)
  elseif part == 'key' then
    return scan_key(q, cursor, count, key)
  elseif part == 'delayed' then
    return scan_delayed(q, cursor, count, key)
  elseif part then
    return scan_dead(q, cursor, count, DEAD_ONES[part])
  end
  local reply = { '' }
  reply[1] = each_message(q, cursor, count, true, function(_, m)
    return description.tell(q, m, reply)
  end)
  return reply
end)
