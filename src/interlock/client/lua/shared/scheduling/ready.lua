-- The messages that can be leased, those with keys separate from the others. Messages that are
-- ready when they take their place, at priority 0, come in sequence: they go to lists, fk and fu,
-- in a tenth of the memory. All others go to sorted sets, rk and ru: the score is the negative
-- priority, and equal scores are sorted by the member, which is the place. So the front of both
-- follows the order of clause 6.
--
-- A cancelled message leaves its sorted set; in a list its entry stays, and is skipped. The
-- counters have the lengths of lists and sets, and the number of stale entries of a list.

local WITH_KEYS = { list = 'fk', set = 'rk', lists = N.fk, sets = N.rk, stale = N.sk, moves = N.ak, number = 0 }
local WITHOUT = { list = 'fu', set = 'ru', lists = N.fu, sets = N.ru, stale = N.su, moves = N.au, number = 1 }
for i = 1, 2 do
  local half = i == 1 and WITH_KEYS or WITHOUT
  half.listed = { half = half, listed = true, name = half.list, count = half.lists }
  half.sorted = { half = half, listed = false, name = half.set, count = half.sets }
  -- See slots.lua.
  half.moved = { half = half, listed = false, name = i == 1 and 'ak' or 'au', count = half.moves, kind = i == 1 and 'keyed' or 'unkeyed' }
end
local KINDS = { any = { WITH_KEYS, WITHOUT }, keyed = { WITH_KEYS }, unkeyed = { WITHOUT } }

local function ready_count(c, kind)
  local count, halves = 0, KINDS[kind]
  for i = 1, #halves do
    local half = halves[i]
    count = count + c[half.lists] + c[half.sets] - c[half.stale] + c[half.moves]
    if c[N.grouped] > 0 then
      count = count + c[turns.READY[half.number]] + c[turns.LET[half.number]]
    end
  end
  return count
end

local function make_ready(q, m, fresh)
  m.state = 'R'
  if not m.changed then
    changed(q, m)
  end
  local half = keyed(m) and WITH_KEYS or WITHOUT
  local priority = m.extras and m.extras.PRIORITY or 0
  if m.group then
    turns.ready(q, turns.part(q, '', m.group, half.number, 100 - priority), m.place)
  elseif fresh and priority == 0 then
    local list = q.pushed[half.list]
    list[#list + 1] = m.place
  else
    local list = q.pushed[half.set]
    list[#list + 1] = 0 - priority -- not -0
    list[#list + 1] = m.place
  end
end

local function flush_ready(q)
  local c, pushed = q.counters, q.pushed
  for _, half in ipairs(KINDS.any) do
    local list, set = pushed[half.list], pushed[half.set]
    if #list > 0 then
      bulk('RPUSH', q[half.list], list)
      c[half.lists] = c[half.lists] + #list
      pushed[half.list] = {}
    end
    if #set > 0 then
      bulk('ZADD', q[half.set], set)
      c[half.sets] = c[half.sets] + #set / 2
      pushed[half.set] = {}
    end
  end
end

-- Removes the stale entries of a list.
local function drop_stale(q, half)
  local c, name = q.counters, q[half.list]
  local live = {}
  for first = 0, c[half.lists] - 1, CHUNK do
    local places = redis_call('LRANGE', name, first, first + CHUNK - 1)
    for i, text in ipairs(fetch(q.c, places)) do
      local m = q.messages[places[i]]
      if m == nil and text and string_sub(text, 1, 1) == 'R' or m and m.state == 'R' and not m.gone then
        live[#live + 1] = places[i]
      end
    end
  end
  redis_call('DEL', name)
  bulk('RPUSH', name, live)
  c[half.lists], c[half.stale] = #live, 0
end

-- A ready message is no longer ready, without having been leased.
local function withdraw(q, m)
  if m.group then
    turns.withdraw(q, m)
    return
  end
  flush_ready(q)
  local c, half = q.counters, keyed(m) and WITH_KEYS or WITHOUT
  if redis_call('ZREM', q[half.set], m.place) == 1 then
    c[half.sets] = c[half.sets] - 1
    return
  end
  m.gone = true
  local stale, entries = c[half.stale] + 1, c[half.lists]
  c[half.stale] = stale
  if stale == entries or stale > 64 and stale > 2 * (entries - stale) then
    drop_stale(q, half)
  end
end

local function comes_before(a, b)
  if a.score ~= b.score then
    return a.score < b.score
  end
  return a.place < b.place
end

-- The sources of ready messages of a kind.
local function sources_of(c, kind)
  local found, halves = {}, KINDS[kind]
  for i = 1, #halves do
    local half = halves[i]
    if c[half.lists] > 0 then
      found[#found + 1] = half.listed
    end
    if c[half.sets] > 0 then
      found[#found + 1] = half.sorted
    end
    if c[half.moves] > 0 then
      found[#found + 1] = half.moved
    end
  end
  return found
end

local function entries_of(q, source, count)
  local list, moved = {}, source.kind and slots.moved_now(q, source.kind)
  if moved then
    for i = 1, math.min(#moved, 2 * count), 2 do
      list[#list + 1] = { place = moved[i + 1], score = moved[i], source = source }
    end
  elseif source.listed then
    local places = redis_call('LRANGE', q[source.name], 0, count - 1)
    for i = 1, #places do
      list[i] = { place = places[i], score = 0, source = source }
    end
  else
    local found = redis_call('ZRANGE', q[source.name], 0, count - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      list[#list + 1] = { place = found[i], score = to_number(found[i + 1]), source = source }
    end
  end
  return list
end

-- Removes the first few entries of a source.
local function remove_first(q, source, used)
  if used > 0 then
    local moved = source.kind and slots.moved_now(q, source.kind)
    if moved then
      slots.take_moved(q, source.kind, used)
    else
      if source.listed then
        redis_call('LPOP', q[source.name], used)
      else
        redis_call('ZREMRANGEBYRANK', q[source.name], 0, used - 1)
      end
      q.counters[source.count] = q.counters[source.count] - used
    end
  end
end

-- Takes the first few places from several sources, in order. Answers the places, and the source of
-- each.
local function pop_merged(q, sources, count)
  local lists, at, places, from = {}, {}, {}, {}
  for s = 1, #sources do
    lists[s], at[s] = entries_of(q, sources[s], count), 1
  end
  while #places < count do
    local first
    for s = 1, #sources do
      local entry = lists[s][at[s]]
      if entry and (not first or comes_before(entry, lists[first][at[first]])) then
        first = s
      end
    end
    if not first then
      break
    end
    places[#places + 1] = lists[first][at[first]].place
    from[#from + 1] = sources[first]
    at[first] = at[first] + 1
  end
  for s = 1, #sources do
    remove_first(q, sources[s], at[s] - 1)
  end
  return places, from
end

-- Takes the first few places; answers also the source of each, or the single source.
local function pop_ready(q, kind, count)
  if q.counters[N.grouped] > 0 then
    return turns.pop(q, kind, count)
  end
  local sources = sources_of(q.counters, kind)
  local only = sources[1]
  if #sources > 1 or not only.listed then
    return pop_merged(q, sources, count)
  end
  local places = redis_call('LPOP', q[only.name], count)
  q.counters[only.count] = q.counters[only.count] - #places
  return places, nil, only
end

-- Places that were taken but not leased return to the front.
local function push_back(q, places, first, from, only)
  if from and from.in_turns then
    turns.push_back(q, from, first)
    return
  end
  if only and only.listed then
    local last_first = {}
    for i = #places, first, -1 do
      last_first[#last_first + 1] = places[i]
    end
    bulk('LPUSH', q[only.name], last_first)
    q.counters[only.count] = q.counters[only.count] + #last_first
    return
  end
  for i = #places, first, -1 do
    local source = only or from[i]
    if source.listed then
      redis_call('LPUSH', q[source.name], places[i])
    else
      local m = message_at(q, places[i])
      redis_call('ZADD', q[source.name], 0 - priority_of(m), places[i])
    end
    q.counters[source.count] = q.counters[source.count] + 1
  end
end

-- Messages that may be ready; those that are, and plain, by their records.
local function ready_at(q, places, pauses, texts)
  if pauses then
    return messages_at(q, places)
  end
  local found = texts or unknown_records(q, places)
  for i = 1, #places do
    local text, place = found[i], places[i]
    if not text then
      found[i] = q.messages[place] or false
    elseif string_byte(text) ~= 82 or string_byte(text, 2) ~= 48 then
      -- Not 'R', or flags other than 0.
      found[i] = unpack_record(place, text)
      q.messages[place] = found[i]
    end
  end
  return found
end

-- The interface to other files: one table, because a library is limited to 200 names.
local ready_sources = {
  of = sources_of, entries = entries_of, comes_before = comes_before, remove_first = remove_first, pop = pop_ready,
  push_back = push_back, at = ready_at,
}
