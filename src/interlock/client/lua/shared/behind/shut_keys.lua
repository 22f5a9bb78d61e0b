-- Messages behind a failure (clause 31): their values, and shut keys.
--
-- A key is shut while it is paused, and while a message that carries it is stuck: one that was held and is not settled yet.
-- A message that waits on a shut key may be parked: it has no place until the key opens; see parking.lua. A key whose
-- messages are about to be parked, buried or cancelled is swept; see sweeps.lua.
--
-- | key | holds |
-- |---|---|
-- | ck | the number of stuck messages by key |
-- | st:KEY | their places: at 0 the held ones, at 1 the others; at 2 messages that are held until others are buried |
-- | pb:KEY | ids of the messages parked for a key, by their first sequences |
-- | pa | ids of all parked messages, by their first sequences |
-- | po | open keys with parked messages, which return, by the first sequence of the first one |
-- | sw | keys that are swept, in order of arrival |
-- | sc, sk | while another BEHIND of the queue is applied: the key swept last, and the shut keys behind it |

local AT_HELD = 0
local AT_RETRIED = 1
local AT_DYING = 2
-- Parked so often, a message waits in its place.
local MOST_TIMES = 8

-- A table of functions: a library is limited to 200 names.
local behind = { WORDS = { [0] = 'wait', 'bury', 'cancel', 'park' } }

-- The keys of a message, the exclusive ones first.
function behind.keys_of(m)
  local keys = m.keys
  if not keys then
    keys = m.exclusive
    if #m.shared > 0 then
      keys = { table_unpack(keys) }
      for i = 1, #m.shared do
        keys[#keys + 1] = m.shared[i]
      end
    end
    m.keys = keys
  end
  return keys
end

-- Its own value, or else the queue's.
function behind.value(q, m)
  return m.extras and m.extras.BEHIND or behind.WORDS[q.counters[N.behind]]
end

-- Whether anything is there for which messages may have no place.
function behind.has_shut(c)
  return c[N.rare] > 0 and c[N.stuck] + c[N.paused] + c[N.parked] + c[N.dying] > 0
end

-- Its lease has ended before, without settling it: it keeps its places.
function behind.was_handed_out(m)
  local extras = m.extras
  return extras and (extras.RETURNED or extras.STUCK or (extras.ATTEMPT or 1) > 1)
end

-- Reads what says whether the keys of these messages are shut.
function behind.look_at(q, messages)
  local keys = {}
  for _, m in ipairs(messages) do
    for _, key in ipairs(behind.keys_of(m)) do
      keys[#keys + 1] = key
    end
  end
  for part, counter in pairs({ pk = N.paused, ck = N.stuck }) do
    if q.counters[counter] > 0 then
      prefetch(hash(q, part), keys)
    end
  end
end

function behind.is_paused(q, key)
  return q.counters[N.paused] > 0 and get(hash(q, 'pk'), key)
end

function behind.is_stuck(q, key)
  return q.counters[N.stuck] > 0 and get(hash(q, 'ck'), key)
end

function behind.is_shut(q, key)
  return behind.is_paused(q, key) or behind.is_stuck(q, key)
end

-- The lowest first sequence of the messages parked for a key, as text; nil if there are none.
function behind.first_parked(q, key)
  local c = q.counters
  if c[N.parked] == 0 or c[N.swept] == 0 and not behind.is_shut(q, key) then
    return nil
  end
  return redis_call('ZRANGE', name_of(q, 'pb:' .. key), 0, 0, 'WITHSCORES')[2]
end

-- The first held message of a lane.
function behind.held_on(q, key)
  local c, first = q.counters, nil
  local name = name_of(q, 'st:' .. key)
  for at, counter in pairs({ [AT_HELD] = N.stuck, [AT_DYING] = N.dying }) do
    local place = c[counter] > 0 and redis_call('ZRANGEBYSCORE', name, at, at, 'LIMIT', 0, 1)[1]
    if place and not (first and first < place) then
      first = place
    end
  end
  return first and message_at(q, first)
end

-- A key is shut now: what is parked for it does not return any more.
local function note_shut(q, key)
  local c = q.counters
  if c[N.swept] == 0 then
    return
  end
  if redis_call('ZREM', q.po, key) == 1 then
    c[N.swept] = c[N.swept] - 1
  end
  local last = redis_call('GET', q.sc)
  if last and limit_names.below(last, key) then
    redis_call('ZADD', q.sk, 0, key)
  end
end

-- Something that shut a key is gone.
function behind.note_open(q, key)
  local c = q.counters
  if c[N.parked] == 0 or behind.is_shut(q, key) then
    return
  end
  local first = redis_call('ZRANGE', name_of(q, 'pb:' .. key), 0, 0, 'WITHSCORES')[2]
  if first then
    c[N.swept] = c[N.swept] + redis_call('ZADD', q.po, first, key)
  end
end

-- These keys are to be swept.
function behind.sweep(q, keys)
  local c = q.counters
  if may_leave(c) then
    for _, key in ipairs(keys) do
      c[N.moved] = c[N.moved] + 1
      c[N.swept] = c[N.swept] + redis_call('ZADD', q.sw, 'NX', c[N.moved], key)
    end
  end
end

function behind.pause(q, key)
  note_shut(q, key)
  behind.sweep(q, { key })
end

local function mark_keys(q, m, score)
  for _, key in ipairs(behind.keys_of(m)) do
    redis_call('ZADD', name_of(q, 'st:' .. key), score, m.place)
  end
end

local function unmark_keys(q, m)
  for _, key in ipairs(behind.keys_of(m)) do
    redis_call('ZREM', name_of(q, 'st:' .. key), m.place)
  end
end

-- An older library that settles stuck messages leaves them there.
local function forget_stuck(q)
  local keys = redis_call('HKEYS', q.ck)
  for i = 1, #keys do
    keys[i] = name_of(q, 'st:' .. keys[i])
  end
  keys[#keys + 1] = q.ck
  for first = 1, #keys, CHUNK do
    redis_call('UNLINK', table_unpack(keys, first, math.min(first + CHUNK - 1, #keys)))
  end
end

-- A message is held.
function behind.become_stuck(q, m)
  local c, keys = q.counters, behind.keys_of(m)
  if not (m.extras and m.extras.STUCK) then
    local ck = hash(q, 'ck')
    if c[N.stuck] == 0 and next(ck.values) == nil then
      forget_stuck(q)
    end
    prefetch(ck, keys)
    for _, key in ipairs(keys) do
      local count = get(ck, key)
      set(ck, key, digits((count or 0) + 1))
      if not count then
        c[N.stuck] = c[N.stuck] + 1
        note_shut(q, key)
      end
    end
    extra(m, 'STUCK', true)
    changed(q, m)
  end
  mark_keys(q, m, AT_HELD)
  behind.sweep(q, keys)
end

-- A message is held until the others that go with it are gone.
function behind.become_dying(q, m)
  q.counters[N.dying] = q.counters[N.dying] + 1
  extra(m, 'DYING', true)
  extra(m, 'RETURNED', true)
  changed(q, m)
  mark_keys(q, m, AT_DYING)
  behind.sweep(q, behind.keys_of(m))
end

-- A held message is queued again.
function behind.retry(q, m)
  local extras = m.extras or NONE
  if extras.DYING then
    q.counters[N.dying] = q.counters[N.dying] - 1
    extra(m, 'DYING', nil)
  end
  if extras.STUCK then
    mark_keys(q, m, AT_RETRIED)
  else
    unmark_keys(q, m)
  end
end

-- A stuck message, or one that dies, is settled.
function behind.leave_keys(q, m)
  local c, ck = q.counters, hash(q, 'ck')
  if m.extras.DYING then
    c[N.dying] = c[N.dying] - 1
  end
  unmark_keys(q, m)
  if not m.extras.STUCK then
    return
  end
  for _, key in ipairs(behind.keys_of(m)) do
    local count = get(ck, key)
    if count == '1' then
      set(ck, key, false)
      c[N.stuck] = c[N.stuck] - 1
      behind.note_open(q, key)
    elseif count then
      set(ck, key, digits(count - 1))
    end
  end
end

-- Messages that an older release has held are stuck from now on, as many as one call may look at.
function behind.index_held(q)
  local c = q.counters
  forget_stuck(q)
  c[N.stuck], c[N.dying] = 0, 0
  local places = c[N.held] > 0 and redis_call('ZRANGE', q.held, 0, MAX_DUE - 1) or NONE
  for _, m in ipairs(messages_at(q, places)) do
    if m then
      extra(m, 'STUCK', nil)
      extra(m, 'DYING', nil)
      behind.become_stuck(q, m)
    end
  end
end

-- Whether there is room for one dead letter, beside those that are promised and `more`.
function behind.has_dead_room(q, more)
  local c = q.counters
  return c[N.dead] + c[N.dying] + (more or 0) < option(q, 'MAXDEAD')
end

-- Whether this many more messages may be parked: at most half of each bound may.
function behind.may_park(q, count, bytes)
  local c, size, most = q.counters, option(q, 'MAXSIZE'), option(q, 'MAXBYTES')
  return not (size > 0 and 2 * (c[N.parked] + count) > size)
    and not (most > 0 and 2 * (c[N.parked_bytes] + bytes) > most)
end

-- The reason to refuse these new messages, or nil: more of them than half of a bound allows may have to be parked. They do
-- not wait for room, because only an operator makes it.
function behind.too_many(q, messages)
  local waiting, count, bytes = {}, 0, 0
  if not behind.has_shut(q.counters) then
    return nil
  end
  for _, m in ipairs(messages) do
    if m.delay == 0 and behind.value(q, m) == 'park' then
      waiting[#waiting + 1] = m
    end
  end
  behind.look_at(q, waiting)
  for _, m in ipairs(waiting) do
    for _, key in ipairs(behind.keys_of(m)) do
      if behind.is_shut(q, key) or behind.first_parked(q, key) then
        count, bytes = count + 1, bytes + #m.payload
        break
      end
    end
  end
  if count > 0 and not behind.may_park(q, count, bytes) then
    return string_format('%d messages wait on a paused or stuck key, and half of the bound is parked', count)
  end
end
