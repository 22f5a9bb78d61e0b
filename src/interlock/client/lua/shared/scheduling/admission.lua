-- Whether a message may be leased by its limits, and what follows when it is, or its lease ends: see slots.lua.

local set_aside = pauses.set_aside

local KEEPER_AFTER = 64

-- The number of a name among those of a message; nil if it does not carry it.
function slots.number_of(m, name)
  for i, own in ipairs(slots.names(m)) do
    if own == name then
      return i
    end
  end
end

-- The names of a message in the order in which it waits for them: those with a rate are the last.
function slots.in_order(q, m)
  local names = slots.names(m)
  if #names == 1 then
    return names
  end
  local first, last = {}, {}
  for i = 1, #names do
    local s = slots.of(q, names[i])
    slots.most_of(q, names[i], s)
    local list = s.rate and last or first
    list[#list + 1] = names[i]
  end
  if #first == 0 or #last == 0 then
    return names
  end
  for i = 1, #last do
    first[#first + 1] = last[i]
  end
  return first
end

-- Keepers: a message that was passed for long gets slots as they become free, one name after another. Of a rate it
-- reserves the next grant at once.

local function kept_by(m)
  return m.extras and m.extras.KEEPS
end

-- A keeper takes what is free of the next of its names. One that has all of its slots may be leased.
local function advance(q, m)
  local names, kept = slots.in_order(q, m), kept_by(m)
  while kept < #names and slots.unused(q, names[kept + 1]) > 0 do
    kept = kept + 1
    slots.of(q, names[kept]).kept = true
    slots.note(q, names[kept])
  end
  if kept > kept_by(m) then
    extra(m, 'KEEPS', kept)
    changed(q, m)
    if kept == #names then
      slots.offer(q, m)
    end
  end
end

local function become_keeper(q, m)
  local names = slots.names(m)
  for _, name in ipairs(names) do
    if slots.of(q, name).keeper then
      return false
    end
  end
  for _, name in ipairs(names) do
    slots.of(q, name).keeper = m.place
  end
  extra(m, 'KEEPS', 0)
  redis_call('SADD', q.keep, m.place)
  advance(q, m)
  return true
end

-- A keeper gives up what it keeps, or has been leased by it.
local function stop_keeping(q, m)
  for _, name in ipairs(slots.names(m)) do
    local s = slots.of(q, name)
    s.keeper, s.kept = false, false
    slots.note(q, name)
  end
  extra(m, 'KEEPS', nil)
  redis_call('SREM', q.keep, m.place)
  slots.stop_opening(q, m)
end

-- It no longer waits for a name; the caller gives it another state.
local function stop_waiting(q, m)
  q.counters[N.limited] = q.counters[N.limited] - 1
  if m.extras and m.extras.PASSES then
    extra(m, 'PASSES', nil)
  end
end

-- Whether a message that came up may be leased by its limits. If not, it waits for a name, or under the key
-- that is paused; the second answer is whether another message may be leased instead.
function slots.admit(q, m, paused)
  if kept_by(m) then
    local opens = slots.keeper_opens(q, m)
    if opens > q.now then
      -- The clock was set back.
      slots.offer(q, m)
    end
    return opens <= q.now
  end
  local names = slots.names(m)
  local waited = m.state == 'A' and names[m.aside]
  if waited and slots.room(q, waited) < 1 then
    if q.counters[N.grouped] > 0 then
      -- The clock was set back.
      slots.return_shared(q, m, waited)
    else
      slots.come_up(q, waited)
      slots.enter_line(q, m, waited)
    end
    return false
  end
  if paused then
    if waited then
      slots.come_up(q, waited, m)
      stop_waiting(q, m)
    end
    set_aside(q, m, paused)
    return false, waited and slots.move_first(q, waited)
  end
  local ordered, full = slots.in_order(q, m), 1
  while full <= #names and slots.room(q, ordered[full]) > 0 do
    full = full + 1
  end
  local has_room = full > #names
  full = has_room and slots.own_before(q, m, ordered) or ordered[full]
  if not full then
    return true
  end
  full = slots.number_of(m, full)
  local passes = 0
  if waited then
    slots.come_up(q, waited, m)
    passes = (m.extras and m.extras.PASSES or 0) + (has_room and 0 or 1)
    extra(m, 'PASSES', passes > 0 and passes or nil)
  else
    q.counters[N.limited] = q.counters[N.limited] + 1
  end
  m.state, m.aside = 'A', full
  changed(q, m)
  if passes < KEEPER_AFTER or not become_keeper(q, m) then
    slots.enter_line(q, m, names[full])
  end
  return false, waited and slots.move_first(q, waited)
end

-- A message is leased. Answers whether another one may be that was not moved yet.
function slots.take(q, m)
  local any = false
  if kept_by(m) then
    stop_keeping(q, m)
  elseif m.state == 'A' then
    local name = slots.names(m)[m.aside]
    slots.use_turn(q, m, name)
    slots.come_up(q, name, m)
  end
  if m.state == 'A' then
    stop_waiting(q, m)
  end
  for _, name in ipairs(slots.names(m)) do
    local s = slots.of(q, name)
    s.leased = s.leased + 1
    slots.most_of(q, name, s)
    if s.rate then
      rates.charge(q, s)
    end
    if q.counters[N.grouped] > 0 then
      any = slots.note(q, name) or any
    elseif slots.is_behind(s) then
      any = slots.move_behind(q, name) or any
    elseif s.raised then
      any = slots.move_first(q, name) or any
    end
  end
  return any
end

-- The keepers of these names take what is free.
function slots.advance_keepers(q, names)
  for _, name in ipairs(names) do
    local keeper = slots.of(q, name).keeper
    if keeper then
      advance(q, message_at(q, keeper))
    end
  end
end

-- The lease of a message ends.
function slots.free(q, m)
  local names = slots.names(m)
  for _, name in ipairs(names) do
    local s = slots.of(q, name)
    s.leased = s.leased - 1
  end
  slots.advance_keepers(q, names)
  for _, name in ipairs(names) do
    local s = slots.of(q, name)
    slots.most_of(q, name, s)
    if not s.rate then
      slots.move_first(q, name)
    end
  end
end

-- A message in line, or a keeper, is cancelled, or a key of a keeper is paused. The caller gives it another state.
function slots.leave(q, m)
  local names, kept = slots.names(m), kept_by(m)
  if kept then
    if kept == #names and not m.extras.OPENS then
      slots.remove(q, m)
    end
    stop_keeping(q, m)
    for i = 1, #names do
      slots.move_first(q, names[i])
    end
  elseif not slots.remove(q, m, names[m.aside]) then
    slots.move_first(q, names[m.aside])
  end
  stop_waiting(q, m)
end

-- The keepers that hold one of these keys; all without keys.
function slots.keepers_on(q, keys)
  local asked, found = {}, {}
  for i = 1, keys and #keys or 0 do
    asked[keys[i]] = true
  end
  for _, m in ipairs(messages_at(q, redis_call('SMEMBERS', q.keep))) do
    local holds = not keys
    for _, list in ipairs({ m.exclusive, m.shared }) do
      for _, key in ipairs(list) do
        holds = holds or asked[key]
      end
    end
    found[#found + 1] = holds and m or nil
  end
  return found
end

-- The limits of the queue were changed; there are no keepers.
function slots.configure(q)
  local names = redis_call('ZRANGE', q.sn, 0, -1)
  slots.read(q, names, #names)
  for _, s in pairs(q.slots) do
    s.most, s.even = false, nil
  end
  rates.read(q, names, #names)
  for _, name in ipairs(names) do
    slots.move_several(q, name)
  end
end

-- Plain messages (see plain.lua): the limit name of each, and whether it waited for that; the first few of these lists.
slots.named = {}
slots.waited = {}

-- Takes a slot for each, if there is one; answers whether it did. This many of them waited for their name.
function slots.take_plainly(q, count, waited)
  local names, found, taken = slots.named, q.slots, 0
  slots.read(q, names, count)
  local timed, before = q.timed > q.now, nil
  if timed then
    rates.read(q, names, count)
  end
  while taken < count do
    local name = names[taken + 1]
    local s = found[name]
    local leased = s.leased
    local free = slots.most_of(q, name, s) - leased - (s.kept and 1 or 0)
    if timed or s.rate then
      free = math.min(free, rates.allowed(q, name, s))
    end
    -- One that is in line may come before these.
    if free < 1 or s.raised or slots.is_behind(s) then
      break
    end
    if s.rate then
      before = before or {}
      before[taken + 1] = s.even
      rates.charge(q, s)
    end
    s.leased, taken = leased + 1, taken + 1
  end
  if taken == count then
    if waited > 0 then
      q.counters[N.limited] = q.counters[N.limited] - waited
      for i = 1, count do
        if slots.waited[i] then
          slots.come_up(q, names[i])
        end
      end
    end
    return true
  end
  for i = taken, 1, -1 do
    local s = found[names[i]]
    s.leased = s.leased - 1
    if s.rate then
      s.even, s.charged = before[i], false
    end
  end
  return false
end

-- Frees the slot of each; answers whether it did.
function slots.free_plainly(q, count)
  local names, found, listed = slots.named, q.slots, false
  slots.read(q, names, count)
  for i = 1, count do
    local s = found[names[i]]
    if s.keyed then
      if s.keeper then
        return false
      end
      listed = true
    end
  end
  if listed and q.timed > q.now then
    rates.read(q, names, count)
  end
  for i = 1, count do
    local s = found[names[i]]
    s.leased = s.leased - 1
    if listed and s.keyed and s.keyed + s.unkeyed > 0 then
      slots.most_of(q, names[i], s)
      if not s.rate then
        slots.move_first(q, names[i])
      end
    end
  end
  q.counters[N.gated] = q.counters[N.gated] - count
  return true
end
