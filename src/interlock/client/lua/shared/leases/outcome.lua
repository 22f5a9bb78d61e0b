-- The end of messages, and of attempts (clauses 9, 10).

local unlink = lanes.unlink
local forget_later = dedup.forget_later
local note_ended, keep_result = results.note_ended, results.keep
local left_behind, barrier_settled = barriers.left_behind, barriers.settled

-- A message with limit names is no longer leased, if it was.
local function lease_ended(q, m)
  if m.limit and m.state == 'L' then
    slots.free(q, m)
  end
end

-- Removes a message from its lanes and from the queue, and readies the messages it blocked. `kept`
-- leaves its long payload, for a dead letter.
local function settle(q, m, kept)
  -- Delayed and parked ones have no place, nor has a new one that goes with a held message.
  local c, placed = q.counters, m.state and m.state ~= 'D' and m.state ~= 'K'
  c[N.unsettled], c[N.bytes] = c[N.unsettled] - 1, c[N.bytes] - size_of(m)
  if m.limit then
    c[N.gated] = c[N.gated] - 1
    lease_ended(q, m)
  end
  if m.group then
    turns.leave(q, m.group, turns.half_of(m), turns.rank_of(m))
  end
  local extras = m.extras
  if extras then
    forget_later(q, m)
    if extras.COALESCE then
      coalescing.settled(q, m)
    end
    if extras.BEHIND and extras.BEHIND ~= 'wait' then
      c[N.own] = c[N.own] - 1
    end
    if extras.RUN then
      c[N.running] = c[N.running] - 1
    end
    if extras.STUCK or extras.DYING then
      behind.leave_keys(q, m)
    end
  end
  if m.outside and not kept then
    redis_call('HDEL', q.y, m.id)
  end
  if m.id ~= m.place or extras and extras.SEQUENCE then
    set(hash(q, 'al'), m.id, false)
    c[N.aliases] = c[N.aliases] - 1
  end
  m.gone = true
  q.messages[m.place] = false
  if c[N.settled_until] > q.now then
    note_ended(q, { m.id })
  end
  changed(q, m)
  if not placed then
    return
  elseif m.barrier then
    barrier_settled(q, m)
  else
    unlink(q, m)
    if c[N.barriers] > 0 then
      left_behind(q, m)
    end
  end
end

-- Dead letters, in one table: a name at the top takes one of 200 locals.
-- µs: see letters.note.
local letters = { GRACE = 600000000 }

-- xk has the letters of each key, in the order in which they died: a member is the length of the key, the key, the number
-- of the death and the id. One more of each letter, without a key, shows whether xk has all letters: an earlier release
-- did not write it.
local NO_KEY = '\0\0'

-- The beginning of a key's members; with a death, all of the member of that letter.
function letters.behind(key, death, id)
  return lane_field(key) .. (death and string_format('%016.0f', death) .. id or '')
end

function letters.are_listed(q)
  return redis_call('ZLEXCOUNT', q.xk, '[' .. NO_KEY, '(' .. NO_KEY .. ':') == q.counters[N.dead]
end

-- Appends the members of a letter to a list: `separator` goes before each.
local function append_members(list, id, death, dead, separator)
  local tail = letters.behind('', death, id)
  list[#list + 1] = separator
  list[#list + 1] = tail
  tail = string_sub(tail, #NO_KEY + 1)
  for _, keys in ipairs({ dead.exclusive, dead.shared }) do
    for i = 1, #keys do
      list[#list + 1] = separator
      list[#list + 1] = lane_field(keys[i]) .. tail
    end
  end
end

-- A message is a dead letter from now on.
function letters.keep(q, id, dead)
  local c, members = q.counters, {}
  redis_call('HSET', q.x, id, cmsgpack.pack(dead))
  -- Numbered by death, because many die at one time.
  c[N.died], c[N.dead] = c[N.died] + 1, c[N.dead] + 1
  redis_call('ZADD', q.xo, c[N.died], id)
  append_members(members, id, c[N.died], dead, 0)
  bulk('ZADD', q.xk, members)
end

-- Deletes the first of these letters, fewer if they have many keys. Answers how many.
function letters.drop(q, ids)
  local c, members, count = q.counters, {}, 0
  local deaths = #ids > 0 and redis_call('ZMSCORE', q.xo, table_unpack(ids))
  while count < #ids and #members < MAX_BATCH_KEYS do
    local last = math.min(count + READ_AT_ONCE, #ids)
    for i, text in ipairs(redis_call('HMGET', q.x, table_unpack(ids, count + 1, last))) do
      append_members(members, ids[count + i], deaths[count + i], cmsgpack.unpack(text))
    end
    count = last
  end
  ids = { table_unpack(ids, 1, count) }
  bulk('HDEL', q.x, ids)
  bulk('ZREM', q.xo, ids)
  bulk('ZREM', q.xk, members)
  bulk('HDEL', q.y, ids)
  c[N.dead] = c[N.dead] - count
  -- The next in line may be older: a letter that died elsewhere keeps the position of its arrival.
  c[N.dead_due] = c[N.dead] == 0 and NEVER or 0
  if c[N.dead] == 0 then
    c[N.dead_mark] = 0
  end
  return count
end

-- They are kept for DEAD_TTL: at dead_due or later their age is to be looked at. A clock that is wrong for some
-- seconds drops none: a look that finds the oldest too old sets dead_mark to its time (0: it is not), and those that
-- were too old then go at the first look GRACE later, or after DEAD_TTL if that is shorter.
function letters.note(q, died)
  local c, ttl = q.counters, option(q, 'DEAD_TTL')
  if ttl > 0 then
    c[N.dead_due] = math.min(c[N.dead_due], died + ttl)
  end
end

-- The letters whose time was over at a given time, the oldest first and at most `left`; and the
-- time of the next.
function letters.old(q, left, ttl, time)
  -- Mostly the first is not over yet: the others are read only behind one that is.
  local over, first, some = {}, 0, 1
  repeat
    local ids = redis_call('ZRANGE', q.xo, first, first + some - 1)
    for i, text in ipairs(fetch(q.x, ids)) do
      -- Behind the error and the attempts.
      local due = to_number(cmsgpack.unpack(text)[3]) + ttl
      if due > time or #over == left then
        return over, due
      end
      over[#over + 1] = ids[i]
    end
    local is_all = #ids < some
    first, some = first + #ids, 50
  until is_all or first > left
  return over, NEVER
end

function letters.expire(q, left)
  local c, ttl = q.counters, option(q, 'DEAD_TTL')
  local mark, grace = c[N.dead_mark], math.min(letters.GRACE, ttl)
  local passed = mark > 0 and mark + grace <= q.now
  local over, due = {}, NEVER
  if ttl > 0 then
    over, due = letters.old(q, passed and left or 0, ttl, mark)
  end
  if #over > 0 then
    local count = letters.drop(q, over)
    c[N.dead_expired] = c[N.dead_expired] + count
    due = count == #over and due or mark
  end
  if due > q.now then
    mark = 0
  elseif mark == 0 or mark > q.now or passed and due > mark then
    -- If `left` were removed and others were too old as well, the next call continues.
    mark = q.now
  end
  c[N.dead_mark], c[N.dead_due] = mark, mark > 0 and mark + grace or due
end

local function bury(q, m)
  local c = q.counters
  -- The message as it would be requeued, and its cause of death.
  local extras = m.extras or {}
  local dead = {
    extras.ERROR or '', attempt_of(m), digits(q.now), payload = tail_of(m), outside = m.outside,
    barrier = m.barrier, exclusive = m.exclusive, shared = m.shared, extras = {},
  }
  for _, name in ipairs(DECLARED.of_the_dead) do
    dead.extras[name] = extras[name]
  end
  dead.extras.LIMIT, dead.extras.GROUP = m.limit or nil, m.group or nil
  letters.keep(q, m.id, dead)
  letters.note(q, q.now)
  c[N.dead_lettered] = c[N.dead_lettered] + 1
  settle(q, m, true)
end

-- The errors of a message's attempts, the newest first: a byte 30 between them, and in each the text, a byte 31, the
-- attempt, a byte 31, the time. What an older release kept is a text alone.

local function add_error(q, m, text)
  local history = string.gsub(text, '[\30\31]', ' ') .. '\31' .. attempt_of(m) .. '\31' .. digits(q.now)
  local before = m.extras and m.extras.ERROR
  if before and before ~= '' then
    history = history .. '\30' .. before
    if #history > MAX_HISTORY then
      -- The ones that fit completely; the first one does.
      history = string_match(string_sub(history, 1, MAX_HISTORY + 1), '^(.*)\30')
    end
  end
  extra(m, 'ERROR', history)
end

local function become_held(q, m)
  lease_ended(q, m)
  m.state = 'H'
  changed(q, m)
  q.counters[N.held] = q.counters[N.held] + 1
  redis_call('ZADD', q.held, m.place, m.place)
end

local function end_hold(q, m)
  q.counters[N.held] = q.counters[N.held] - 1
  redis_call('ZREM', q.held, m.place)
end

-- A dead letter, or held if the policy or the room for dead letters requires it, or until others are gone with it.
local function give_up(q, m, text, holds)
  holds = holds or not behind.has_dead_room(q)
  add_error(q, m, text)
  local became = not holds and behind.dies_later(q, m, m.token, text)
  if became then
    return became
  end
  if q.watched then
    events.happened(q, holds and 'hold' or 'dead', m, m.token, text)
  end
  if holds then
    become_held(q, m)
    behind.become_stuck(q, m)
    return 'HELD'
  end
  bury(q, m)
  return 'DEAD'
end

-- The pause after the n-th failed attempt, µs. Jitter is a hash of id and n, because a schedule
-- must be reproducible.
local function backoff(q, m, n)
  local all, longest = option(q, 'FIRST', m), option(q, 'LONGEST', m)
  local factor = option(q, 'FACTOR', m) / 1000
  for _ = 2, math.min(n, 1001) do
    if all >= longest then
      break
    end
    all = all * factor
  end
  all = math.floor(math.min(all, longest))
  if option(q, 'JITTER', m) == 0 then
    return all
  end
  local half = math.floor(all / 2)
  local part = (to_number(m.id) % 16777213 * 40503 + n * 9973) % 65536 / 65536
  return half + math.floor((all - half) * part)
end

-- It is leased again from its place, after `delay`.
local function come_again(q, m, delay)
  lease_ended(q, m)
  if not behind.was_handed_out(m) then
    extra(m, 'RETURNED', true)
  end
  if delay > 0 then
    m.state = 'B'
    changed(q, m)
    q.counters[N.backing_off] = q.counters[N.backing_off] + 1
    fall_due_at(q, q.now + delay, 'b' .. m.place)
  else
    make_ready(q, m)
  end
end

-- An attempt failed: redeliver from its place, after `delay` or the backoff, or give up.
local function fail(q, m, delay, text)
  local attempt, most = attempt_of(m), option(q, 'ATTEMPTS', m)
  if most > 0 and attempt >= most then
    return give_up(q, m, text, option(q, 'THEN', m) == 'hold')
  end
  delay = delay or backoff(q, m, attempt)
  add_error(q, m, text)
  if q.watched then
    events.happened(q, 'retry', m, m.token, text)
  end
  extra(m, 'ATTEMPT', attempt + 1)
  q.counters[N.retries] = q.counters[N.retries] + 1
  come_again(q, m, delay)
  return 'RETRIED'
end

-- A lease expired (clause 9). The first time it is unknown whether this message ended its consumer:
-- it is redelivered at the same attempt, alone. Only the next time an attempt is counted. If no
-- handler had begun, nothing changes; a holder that does not report that is believed twice: it may
-- die of another message before it can.
local BELIEVED = 2
local function ran_out(q, m)
  local extras = m.extras or NONE
  local suspect, silent = extras.ALONE, m.told == 's' and (extras.SILENT or 0) + 1 or nil
  local begun = m.told ~= 'w' and (not silent or silent > BELIEVED)
  if begun then
    extra(m, 'ALONE', m.token)
  end
  if silent or extras.SILENT then
    extra(m, 'SILENT', silent and math.min(silent, BELIEVED))
  end
  if begun and suspect then
    fail(q, m, nil, 'lease expired')
  else
    come_again(q, m, 0)
  end
end

local function end_backoff(q, m)
  redis_call('ZREM', q.due, 'b' .. m.place)
  q.counters[N.backing_off] = q.counters[N.backing_off] - 1
end

-- Settles a message that is not leased; `text` says in the event why, if it was not asked for.
local function cancel(q, m, text)
  local c = q.counters
  if m.state == 'D' then
    redis_call('ZREM', q.due, 'd' .. m.id)
    c[N.delayed] = c[N.delayed] - 1
  elseif m.state == 'B' then
    end_backoff(q, m)
  elseif m.state == 'H' then
    end_hold(q, m)
  elseif m.state == 'R' then
    withdraw(q, m)
  elseif m.state == 'A' then
    slots.leave(q, m)
  elseif m.state == 'K' then
    behind.leave_parking(q, m)
  end
  c[N.cancelled] = c[N.cancelled] + 1
  if q.watched then
    events.happened(q, 'cancel', m, nil, text)
  end
  keep_result(q, m, 'c', '')
  if m.extras and m.extras.DEDUP then
    -- Free immediately (clause 13): the canceller may put a corrected message under it.
    set(hash(q, 'u'), m.extras.DEDUP, false)
    m.extras.DEDUP = nil
  end
  settle(q, m)
end

-- The interface to other files: one table, because a library is limited to 200 names.
local outcome = {
  settle = settle, bury = bury, give_up = give_up, come_again = come_again, fail = fail, ran_out = ran_out,
  end_backoff = end_backoff, cancel = cancel, add_error = add_error, become_held = become_held, end_hold = end_hold,
}
