-- The messages that can be handed out, those with keys (k) and the others (u) apart. What is ready as it
-- takes its place, at priority 0, comes in sequence: lists, fk and fu, in a tenth of the memory. All else
-- goes to sorted sets, rk and ru: the score is the negative priority, and equal scores are sorted by the
-- member, which is the place. So the front of both is the order of clause 6.
--
-- A message that is cancelled leaves its sorted set; in a list it stays, and is stepped over.

local KINDS = { any = { 'k', 'u' }, keyed = { 'k' }, unkeyed = { 'u' } }
KINDS.told = 'any, keyed or unkeyed'

local function ready_count(c, kind)
  local count = 0
  for _, letter in ipairs(KINDS[kind]) do
    count = count + c['f' .. letter] + c['r' .. letter] - c['s' .. letter]
  end
  return count
end

local function push(q, m, fresh)
  local letter = keyed(m) and 'k' or 'u'
  local priority = priority_of(m)
  if fresh and priority == 0 then
    local list = q.pushed['f' .. letter]
    list[#list + 1] = m.place
    q.counters['f' .. letter] = q.counters['f' .. letter] + 1
  else
    local list = q.pushed['r' .. letter]
    list[#list + 1] = 0 - priority -- not -0
    list[#list + 1] = m.place
    q.counters['r' .. letter] = q.counters['r' .. letter] + 1
  end
end

local function flush_ready(q)
  local pushed = q.pushed
  for name, list in pairs(pushed) do
    if #list > 0 then
      bulk(string.sub(name, 1, 1) == 'f' and 'RPUSH' or 'ZADD', q[name], list)
      pushed[name] = {}
    end
  end
end

local function make_ready(q, m, fresh)
  m.state = 'R'
  changed(q, m)
  push(q, m, fresh)
end

-- Takes out the entries of lists that stand for nothing.
local function sweep(q, letter)
  local c, name = q.counters, 'f' .. letter
  local live = {}
  for first = 0, c[name] - 1, CHUNK do
    local places = redis.call('LRANGE', q[name], first, first + CHUNK - 1)
    for i, text in ipairs(fetch(q.p, places)) do
      local m = q.messages[places[i]]
      if m == nil and text and string.sub(text, 1, 1) == 'R' or m and m.state == 'R' and not m.gone then
        live[#live + 1] = places[i]
      end
    end
  end
  redis.call('DEL', q[name])
  bulk('RPUSH', q[name], live)
  c[name], c['s' .. letter] = #live, 0
end

-- A ready message is one no more, without having been handed out.
local function withdraw(q, m)
  flush_ready(q)
  local c, letter = q.counters, keyed(m) and 'k' or 'u'
  if redis.call('ZREM', q['r' .. letter], m.place) == 1 then
    c['r' .. letter] = c['r' .. letter] - 1
    return
  end
  m.gone = true
  local stale, entries = c['s' .. letter] + 1, c['f' .. letter]
  c['s' .. letter] = stale
  if stale == entries or stale > 64 and stale > 2 * (entries - stale) then
    sweep(q, letter)
  end
end

local function before(a, b)
  if a.score ~= b.score then
    return a.score < b.score
  end
  return a.place < b.place
end

-- The first so many entries, as they would come.
local function front(q, kind, count)
  local c, sources = q.counters, {}
  for _, letter in ipairs(KINDS[kind]) do
    if c['f' .. letter] > 0 then
      local places = redis.call('LRANGE', q['f' .. letter], 0, count - 1)
      local list = {}
      for i = 1, #places do
        list[i] = { place = places[i], score = 0, from = 'f' .. letter }
      end
      sources[#sources + 1] = list
    end
    if c['r' .. letter] > 0 then
      local found = redis.call('ZRANGE', q['r' .. letter], 0, count - 1, 'WITHSCORES')
      local list = {}
      for i = 1, #found, 2 do
        list[#list + 1] = { place = found[i], score = tonumber(found[i + 1]), from = 'r' .. letter }
      end
      sources[#sources + 1] = list
    end
  end
  if #sources == 1 then
    return sources[1]
  end
  local merged, at = {}, {}
  for s = 1, #sources do
    at[s] = 1
  end
  while #merged < count do
    local first
    for s = 1, #sources do
      local entry = sources[s][at[s]]
      if entry and (not first or before(entry, sources[first][at[first]])) then
        first = s
      end
    end
    if not first then
      break
    end
    merged[#merged + 1] = sources[first][at[first]]
    at[first] = at[first] + 1
  end
  return merged
end

-- Takes the first so many of what front() gave out of their lists and sets.
local function drop_front(q, entries, count)
  local of = {}
  for i = 1, count do
    local from = entries[i].from
    of[from] = (of[from] or 0) + 1
  end
  for from, number in pairs(of) do
    if string.sub(from, 1, 1) == 'f' then
      redis.call('LPOP', q[from], number)
    else
      redis.call('ZREMRANGEBYRANK', q[from], 0, number - 1)
    end
    q.counters[from] = q.counters[from] - number
  end
end

-- Hands out up to so many messages, in order; what is found to be paused is set aside (clause 22).
local function take_ready(q, kind, count)
  local c, taken, keys, parked = q.counters, {}, 0, 0
  if c.halted > 0 then
    return taken
  end
  flush_ready(q)
  while #taken < count and parked < MAX_READIED and ready_count(c, kind) > 0 do
    local entries = front(q, kind, math.min(count - #taken, 128))
    if #entries == 0 then
      break
    end
    local places = {}
    for i = 1, #entries do
      places[i] = entries[i].place
    end
    local found, used, full = messages_at(q, places), 0, false
    look_at_pauses(q, found)
    for i = 1, #entries do
      local m = found[i]
      if not m or m.gone or m.state ~= 'R' then
        c['s' .. string.sub(entries[i].from, 2)] = c['s' .. string.sub(entries[i].from, 2)] - 1
      else
        local paused = paused_key(q, m)
        if paused then
          park(q, m, paused)
          parked = parked + 1
        else
          keys = keys + #m.exclusive + #m.shared
          -- One message may have more keys than are left, or it could never be handed out.
          if keys > MAX_BATCH_KEYS and #taken > 0 then
            full = true
            break
          end
          taken[#taken + 1] = m
        end
      end
      used = i
    end
    drop_front(q, entries, used)
    if full then
      break
    end
  end
  return taken
end
