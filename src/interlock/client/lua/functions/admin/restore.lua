-- il1_restore: window item...
--   item: mark state attempt time error, then a message as il1_put takes it
-- Puts messages of another queue as they stood there (parked ones as waiting), with the attempts they had, and keeps its
-- dead letters. A mark is known for `window`, as the dedup string of a settled message is: what is restored
-- again is not put again. Answers for each its id, and how it stands, or `known`.
-- Into a sealed queue too. No allow-oom: a full server takes nothing new.

local STANDS = {
  waiting = true, delayed = true, backing_off = true, held = true, parked = true, dead = true,
  told = 'waiting, delayed, backing_off, held, parked or dead',
}

local function take_item(from, i)
  local mark = take.text(from, MAX_TEXT, 'messages[%d].mark', i)
  if mark == '' then
    bad(from, 'messages[%d].mark', i, 'is empty')
  end
  local state = take.word(from, STANDS, 'messages[%d].state', i)
  local attempt = take.whole(from, 1, MAX_COUNT, 'messages[%d].attempt', i)
  local time = take.whole(from, 0, MAX_TIME, 'messages[%d].time', i)
  local text = take.text(from, MAX_HISTORY, 'messages[%d].error', i)
  local m, keys = take_message(from, i)
  m.is_stopped = state == 'held' or state == 'backing_off'
  m.may_park = attempt == 1 and (state == 'waiting' or state == 'parked')
  return { mark = mark, state = state, attempt = attempt, time = time, text = text, m = m }, keys
end

local function take_items(from)
  local items, marks, keys = {}, {}, 0
  repeat
    local i = #items + 1
    if i > MAX_BATCH then
      refuse('TOOBIG', '%s: more than %d messages', from.called, MAX_BATCH)
    end
    local item, count = take_item(from, i)
    keys = keys + count
    if keys > MAX_BATCH_KEYS then
      refuse('TOOBIG', '%s: more than %d keys, all messages together', from.called, MAX_BATCH_KEYS)
    end
    local timed = item.m.debounce and 'DEBOUNCE' or item.m.delay > 0 and 'DELAY'
    if timed then
      bad(from, 'messages[%d].' .. timed, i, 'is given by state and time')
    end
    items[i], marks[i] = item, item.mark
  until not more(from)
  local marked = {}
  for i = 1, #marks do
    marked[marks[i]] = true
  end
  for i = 1, #items do
    local extras = items[i].m.extras
    if extras and extras.DEDUP and marked[extras.DEDUP] then
      bad(from, 'messages[%d].DEDUP', i, 'is a mark')
    end
  end
  return items, marks
end

-- The items that no mark and no dedup string knows: messages, their bytes, and how many dead letters.
local function unknown_ones(q, items, names)
  local messages, of, dead = {}, {}, 0
  for i = 1, #items do
    local item = items[i]
    item.first = of[item.mark]
    item.known = not item.first and dedup.known_id(q, item.mark)
    of[item.mark] = of[item.mark] or item
    if not item.first and not item.known then
      if item.state == 'dead' then
        dead = dead + 1
      else
        messages[#messages + 1] = item.m
      end
    end
  end
  local fresh, bytes = new_ones(q, messages, names)
  return fresh, bytes, dead
end

local function check_room(q, from, fresh, bytes, dead)
  if #fresh > 0 then
    local text = too_large(q, #fresh, bytes)
    if text then
      refuse_now(q, 'TOOBIG', '%s: %s', from.called, text)
    end
    local new = {}
    for _, m in ipairs(fresh) do
      new[#new + 1] = m.may_park and m or nil
    end
    text = behind.too_many(q, new)
    if text then
      refuse_now(q, 'STUCK', '%s: %s', from.called, text)
    end
    text = no_room(q, #fresh, bytes)
    if text then
      refuse_now(q, 'FULL', '%s: %s', from.called, text)
    end
  end
  local kept, most = q.counters[N.dead], option(q, 'MAXDEAD')
  if dead > 0 and kept + q.counters[N.dying] + dead > most then
    refuse_now(q, 'FULL', '%s: %s dead letters are kept; MAXDEAD is %s', from.called, digits(kept), digits(most))
  end
end

-- A message that has just become ready as it took its place is no longer ready.
local function not_ready(q, m)
  if m.group then
    turns.withdraw(q, m)
    return
  end
  local half = keyed(m) and WITH_KEYS or WITHOUT
  if priority_of(m) == 0 then
    local list = q.pushed[half.list]
    list[#list] = nil
  else
    local list = q.pushed[half.set]
    list[#list], list[#list - 1] = nil, nil
  end
end

local function restore_message(q, item)
  local c, m, state = q.counters, item.m, item.state
  if item.attempt > 1 or item.text ~= '' then
    m.extras = m.extras or {}
    m.extras.ATTEMPT = item.attempt > 1 and item.attempt or nil
    m.extras.ERROR = item.text ~= '' and item.text or nil
  end
  if state == 'delayed' then
    -- Its due time decides, and nothing is due when it would be by this.
    local due = c[N.due]
    m.delay = MAX_SPAN
    enter(q, m)
    c[N.due] = due
    fall_due_at(q, item.time, 'd' .. m.id)
    return 'delayed'
  end
  if m.is_stopped then
    extra(m, 'RETURNED', true)
  end
  local cancelled = c[N.cancelled]
  enter(q, m)
  if m.gone then
    return c[N.cancelled] > cancelled and 'cancelled' or 'dead'
  end
  -- A later item may move it.
  q.messages[m.place] = m
  if m.state ~= 'R' then
    return m.state == 'K' and 'parked' or 'waiting'
  elseif state == 'held' then
    not_ready(q, m)
    outcome.become_held(q, m)
    behind.become_stuck(q, m)
    behind.move(q)
  elseif state == 'backing_off' then
    not_ready(q, m)
    m.state = 'B'
    c[N.backing_off] = c[N.backing_off] + 1
    fall_due_at(q, item.time, 'b' .. m.place)
  end
  return m.is_stopped and state or 'waiting'
end

local function restore_dead(q, item)
  local m = item.m
  m.id = draw(q, N.seq)
  -- Its age counts from here on at the latest, whatever the clock there said.
  local died = math.min(item.time, q.now)
  local dead = {
    item.text, item.attempt, digits(died), payload = m.payload, outside = false,
    barrier = m.barrier or false, exclusive = m.exclusive, shared = m.shared, extras = {},
  }
  if #m.payload > APART then
    redis_call('HSET', q.y, m.id, m.payload)
    dead.outside, dead.payload = true, tostring(#m.payload)
  end
  for _, name in ipairs(DECLARED.of_the_dead) do
    dead.extras[name] = m.extras and m.extras[name]
  end
  dead.extras.LIMIT, dead.extras.GROUP = m.limit or nil, m.group or nil
  letters.keep(q, m.id, dead)
  letters.note(q, died)
end

register('restore', function(q, from)
  local window = take.whole(from, 1, MAX_SPAN, 'window')
  from.restores = true
  local items, marks = take_items(from)
  local c = begin(q)
  prefetch(hash(q, 'u'), marks)
  local fresh, bytes, dead = unknown_ones(q, items, from.names)
  check_room(q, from, fresh, bytes, dead)
  lanes.look_at(q, fresh)
  local reply = {}
  for i = 1, #items do
    local item, became = items[i], 'dead'
    local m = item.m
    local text = item.state ~= 'dead' and m.extras and m.extras.DEDUP
    -- A string that was known may be free again: its message has gone with a held one.
    local marked = dedup.known_id(q, item.mark)
    local id = marked or text and dedup.known_id(q, text)
    if id then
      became = 'known'
      c[N.deduplicated] = c[N.deduplicated] + 1
    elseif item.state == 'dead' then
      restore_dead(q, item)
    else
      became = restore_message(q, item)
    end
    id = id or m.id
    if not marked then
      dedup.remember(q, item.mark, id)
      dedup.know_for(q, item.mark, id, window)
    end
    reply[2 * i - 1], reply[2 * i] = id, became
  end
  commit(q)
  return reply
end)
