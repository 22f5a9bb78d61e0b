-- Dedup strings (clause 13): u has the id of the message of each, and once that is settled also until when
-- the string is known; uw has these times, to forget by.

-- The id that a dedup string is known by.
local function known_id(q, text)
  local value = get(hash(q, 'u'), text)
  if not value then
    return nil
  end
  local id, known_until = string_match(value, '^(%d+) ?(%d*)$')
  if known_until == '' or to_number(known_until) > q.now then
    return id
  end
  return nil
end

local function forget(q, most)
  if q.counters[N.windows] == 0 then
    return
  end
  local over = redis_call('ZRANGEBYSCORE', q.uw, '-inf', digits(q.now), 'LIMIT', 0, most)
  for _, text in ipairs(over) do
    set(hash(q, 'u'), text, false)
  end
  bulk('ZREM', q.uw, over)
  q.counters[N.windows] = q.counters[N.windows] - #over
end

local function remember(q, text, id)
  -- Removed there, or the purge would take the new message's entry.
  if get(hash(q, 'u'), text) and redis_call('ZREM', q.uw, text) == 1 then
    q.counters[N.windows] = q.counters[N.windows] - 1
  end
  set(hash(q, 'u'), text, id)
  q.eased = true
  forget(q, 10)
end

-- It is known for the same time as that of a message settled now.
local function know_for(q, text, id, window)
  local known_until = digits(q.now + window)
  set(hash(q, 'u'), text, id .. ' ' .. known_until)
  redis_call('ZADD', q.uw, known_until, text)
  q.counters[N.windows] = q.counters[N.windows] + 1
end

-- The message of a dedup string was settled: it is known until its window ends.
local function forget_later(q, m)
  local text = m.extras and m.extras.DEDUP
  if not text then
    return
  end
  local window = option(q, 'WINDOW', m)
  if window == 0 then
    set(hash(q, 'u'), text, false)
  else
    know_for(q, text, m.id, window)
  end
  forget(q, 10)
end

-- The interface to other files: one table, because a library is limited to 200 names.
local dedup = {
  known_id = known_id, forget = forget, remember = remember, know_for = know_for, forget_later = forget_later,
}
