-- il1_blocked: most root...
--   root: id ID, or key KEY; an empty key is the queue itself
-- How many messages wait behind these, directly or through others, each once and these not counted: at most
-- `most`, beside those behind a barrier that waits too, which are counted without being looked at. Answers the
-- number, and 1 if those are all.

local BY = { id = true, key = true, told = 'id or key' }

local function take_roots(from)
  local ids, keys, halted = {}, {}, false
  local i = 0
  repeat
    i = i + 1
    if i > MAX_BATCH then
      refuse('TOOBIG', '%s: more than %d roots', from.called, MAX_BATCH)
    end
    if take.word(from, BY, 'roots[%d]', i) == 'id' then
      ids[#ids + 1] = take.number(from, 'roots[%d].id', i)
    else
      local key = take.text(from, MAX_KEY_BYTES, 'roots[%d].key', i)
      if key == '' then
        halted = true
      else
        keys[#keys + 1] = key
      end
    end
  until not more(from)
  return ids, keys, halted
end

local function is_queued(m)
  return m.state == 'R' or m.state == 'A' or m.state == 'P' or m.state == 'W' or m.state == 'G'
end

-- Counts a message, whose lanes are examined next. False: the limit is reached.
local function count_one(walk, m)
  if walk.until_place and m.place >= walk.until_place or walk.seen[m.place] then
    return true
  elseif walk.count == walk.most then
    walk.exact = false
    return false
  end
  walk.seen[m.place] = true
  walk.count = walk.count + 1
  walk.line[#walk.line + 1] = m
  return true
end

-- Shows the nodes of a lane from one on, while `each` wants more. False: the limit of nodes is
-- reached.
local function follow(q, walk, key, node, each)
  while node do
    if walk.steps == 0 then
      walk.exact = false
      return false
    end
    walk.steps = walk.steps - 1
    local place = string_sub(node, 2)
    local goes_on = each(place, string_sub(node, 1, 1) == 'x')
    if not goes_on then
      return goes_on ~= nil
    end
    node = redis_call('HGET', q.n, place .. key)
  end
  return true
end

-- Counts the messages blocked by a message in one of its lanes: the first that conflicts with it,
-- and all after that. False: the limit is reached.
local function count_behind(q, walk, m, key, exclusive)
  local conflicts = exclusive
  if walk.looked_at[m.place .. key] == true then
    return true
  end
  local node = redis_call('HGET', q.n, m.place .. key)
  return follow(q, walk, key, node, function(place, alone)
    if walk.until_place and place >= walk.until_place then
      return false
    end
    conflicts = conflicts or alone
    local field = place .. key
    local before = walk.looked_at[field]
    if before == true or before == false and not conflicts then
      return false
    end
    walk.looked_at[field] = conflicts
    if conflicts and not count_one(walk, message_at(q, place)) then
      return nil
    end
    return true
  end)
end

local function count_all_behind(q, walk, m)
  for _, key in ipairs(m.exclusive) do
    if not count_behind(q, walk, m, key, true) then
      return false
    end
  end
  for _, key in ipairs(m.shared) do
    if not count_behind(q, walk, m, key, false) then
      return false
    end
  end
  return true
end

local function lane_head(q, key)
  local text = get(hash(q, 'l'), key)
  return text and lanes.of(q, text).head
end

-- The first barrier at or behind a place waits, and so does all behind it: how many those are. What comes before it
-- is left to the walk.
local function behind_barrier(q, walk, first)
  local c = q.counters
  local barrier = first and c[N.barriers] > 0
    and redis_call('ZRANGEBYSCORE', q.ba, first, '+inf', 'LIMIT', 0, 1)[1]
  if not barrier then
    return 0
  end
  walk.until_place = barrier
  local ahead, exact = description.before_barrier(q, { steps = 2 * MAX_ROOTS }, barrier)
  if not exact then
    walk.exact = false
    return 0
  end
  local among = 0
  for _, m in ipairs(walk.line) do
    among = among + (m.place >= barrier and 1 or 0)
  end
  return c[N.unsettled] - c[N.delayed] - c[N.parked] - ahead - among
end

-- How many messages are parked for these keys, each of which counts once.
local function parked_for(q, walk, keys, seen)
  local count = 0
  for _, key in ipairs(q.counters[N.parked] > 0 and keys or NONE) do
    if not seen[key] then
      seen[key] = true
      if walk.steps == 0 then
        walk.exact = false
        break
      end
      walk.steps = walk.steps - 1
      count = count + redis_call('ZCARD', name_of(q, 'pb:' .. key))
    end
  end
  return count
end

register('blocked', function(q, from)
  local most = take.whole(from, 1, MAX_WALKED, 'most')
  local ids, keys, halted = take_roots(from)
  local c = look(q)
  if halted then
    local aside = c[N.delayed] + c[N.leased] + c[N.backing_off] + c[N.held] + c[N.parked]
    return { digits(c[N.unsettled] - aside), '1' }
  end
  local walk = {
    seen = {}, looked_at = {}, line = {}, count = 0, most = most, steps = MAX_PLACES, exact = true,
  }
  local first, roots = nil, {}
  for _, m in ipairs(find_all(q, ids)) do
    if m and m.state ~= 'D' and m.state ~= 'K' then
      first = (not first or m.place < first) and m.place or first
      if not walk.seen[m.place] then
        walk.seen[m.place] = true
        walk.line[#walk.line + 1] = m
        roots[#roots + 1] = m
      end
    end
  end
  for _, key in ipairs(keys) do
    follow(q, walk, key, lane_head(q, key), function(place)
      if not is_queued(message_at(q, place)) then
        return true
      end
      first = (not first or place < first) and place or first
      return false
    end)
  end
  local after = behind_barrier(q, walk, first)
  for _, key in ipairs(keys) do
    follow(q, walk, key, lane_head(q, key), function(place)
      local m = message_at(q, place)
      return not is_queued(m) or count_one(walk, m)
    end)
  end
  while #walk.line > 0 do
    local m = table.remove(walk.line)
    if not count_all_behind(q, walk, m) then
      walk.exact = false
      break
    end
  end
  local seen = {}
  local parked = parked_for(q, walk, keys, seen)
  for _, m in ipairs(roots) do
    parked = parked + parked_for(q, walk, behind.keys_of(m), seen)
  end
  return { digits(walk.count + after + parked), walk.exact and '1' or '0' }
end)
