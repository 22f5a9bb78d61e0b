-- Times at which limit names let messages pass again (see rates.lua). The set of due times has them (see due.lua): n and
-- the name that messages wait for, k and the place of a keeper that has all of its slots.

-- The time from which no name of a keeper refuses it.
function slots.keeper_opens(q, m)
  local opens = 0
  for _, name in ipairs(slots.names(m)) do
    local s = slots.of(q, name)
    slots.most_of(q, name, s)
    opens = math.max(opens, rates.opens(q, name, s, m.place))
  end
  return opens
end

-- A keeper that has all of its slots may be leased, from that time on.
function slots.offer(q, m)
  local opens = slots.keeper_opens(q, m)
  if opens > q.now then
    extra(m, 'OPENS', opens)
    fall_due_at(q, opens, 'k' .. m.place)
  else
    slots.stop_opening(q, m)
    if m.group then
      turns.let(q, m.group, turns.half_of(m), turns.rank_of(m), m.place)
    else
      slots.move(q, slots.kind_of(m), 0 - priority_of(m), m.place)
    end
  end
  changed(q, m)
end

-- A keeper does not wait for a time any more.
function slots.stop_opening(q, m)
  if m.extras and m.extras.OPENS then
    extra(m, 'OPENS', nil)
    redis_call('ZREM', q.due, 'k' .. m.place)
  end
end

-- When a name lets waiting messages pass that only have to wait for the time; else false.
local function opening_of(q, name, s)
  if s.keyed + s.unkeyed + s.moved + s.others == 0 or q.counters[N.timed] <= q.now or slots.unused(q, name) < 1 then
    return false
  end
  local opens = rates.opens(q, name, s)
  return opens > q.now and opens < NEVER and opens
end

-- Enters these times if they changed.
function slots.write_openings(q)
  local c, entered, gone = q.counters, nil, nil
  for name, s in pairs(q.slots) do
    local opens = s.keyed and opening_of(q, name, s)
    if s.keyed and opens ~= s.opening then
      s.opening, entered, gone = opens, entered or {}, gone or {}
      if opens then
        entered[#entered + 1], entered[#entered + 2] = digits(opens), 'n' .. name
        c[N.due] = math.min(c[N.due], opens)
      else
        gone[#gone + 1] = 'n' .. name
      end
    end
  end
  if entered then
    bulk('ZADD', q.due, entered)
    bulk('ZREM', q.due, gone)
  end
end

-- The time has come for these names, and for these keepers.
function slots.open(q, names, places)
  slots.read(q, names, #names)
  rates.read(q, names, #names)
  for _, name in ipairs(names) do
    local s = slots.of(q, name)
    s.opening = false
    slots.move_several(q, name)
  end
  for _, m in ipairs(messages_at(q, places)) do
    slots.offer(q, m)
  end
end

-- A handler closes a name.
function slots.close(q, name, time)
  local c = q.counters
  if time <= q.now then
    return
  end
  redis_call('ZADD', q.rt, 'GT', digits(time), 'c' .. name)
  c[N.timed] = math.max(c[N.timed], time)
  if not q.slots then
    return
  end
  q.timed = math.max(q.timed, time)
  local s = slots.of(q, name)
  -- Unread, it is read with what was just written.
  if s.closed then
    s.closed = math.max(s.closed, time)
  end
  slots.note(q, name)
  local keeper = s.keeper and message_at(q, s.keeper)
  if keeper and keeper.extras.KEEPS == #slots.names(keeper) then
    if not keeper.extras.OPENS then
      slots.remove(q, keeper)
    end
    slots.offer(q, keeper)
  end
end
