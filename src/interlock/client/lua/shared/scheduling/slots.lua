-- Limits (clause 26): at most N leased messages carry a limit name. The field s NAME of c has the name's
-- slots: the number of leased messages that carry it or, in the packed form, also how many messages with and
-- without keys are in line for it, whether its limit was changed, its keeper, the first of each line, the time that it
-- waits for (see openings.lua), and how many messages were moved from its lines.
--
-- A ready message that comes up and finds a name without room waits for the first such name: its state is A with the
-- number of that name, and it enters the name's line, which is sorted as the ready are. A slot that
-- becomes free moves the first of each line to ak or au, from which a lease takes as from other ready messages. One
-- move for each free slot is enough: either the moved message takes the slot, or what takes it comes before that; what
-- leaves without taking one moves the next. A message that finds no room there returns to its line. Of a name with a
-- rate, time frees slots: the first moves one message (see openings.lua), and the first grant in a call the others.
--
-- | key | holds |
-- |---|---|
-- | ak, au | messages that came first in a line when a slot became free |
-- | lk:NAME, lu:NAME | those in line, with keys and without, behind the first ones |
-- | sn | the names that have a line or a keeper |
-- | keep | the places of keepers |

-- Messages of a line that are in the field of its name: most calls then need no other key.
local MOST_FIRST = 16
-- Twice the number of moved messages that a call sorts itself.
local MANY_MOVED = 512

-- A table of functions: a library is limited to 200 names.
local slots = {}

-- Strings of small numbers.
local TEXTS = {}

-- Reads the field of a name. One that nothing waits for has only the number of leased messages: see slots.of.
local function unpacked(field, text)
  -- Digits alone, and no packed form.
  if not text or string_byte(text) < 128 then
    return { field = field, text = text, leased = text and to_number(text) or 0, most = false, rate = false, others = 0 }
  end
  local parts = cmsgpack.unpack(text)
  return {
    field = field, text = text, leased = parts[1], most = false, rate = false, keyed = parts[2], unkeyed = parts[3],
    raised = parts[4], kept = parts[5], keeper = parts[6], first = { keyed = parts[7], unkeyed = parts[8] },
    opening = parts[9] or false, moved = parts[10] or 0, is_open = false, others = parts[11] or 0, shared = parts[12] or false,
  }
end

-- Whether anything waits for a name.
local function is_listed(s)
  return s.keyed and (s.keyed + s.unkeyed + s.moved + s.others > 0 or s.keeper ~= false)
end

local function stored_form(s)
  local leased = s.leased
  if is_listed(s) then
    return cmsgpack.pack({
      leased, s.keyed, s.unkeyed, s.raised, s.kept, s.keeper, s.first.keyed, s.first.unkeyed, s.opening, s.moved,
      s.others, s.shared or nil,
    })
  elseif leased == 0 then
    return false
  end
  local text = TEXTS[leased]
  if not text then
    text = digits(leased)
    if leased < 1000 then
      TEXTS[leased] = text
    end
  end
  return text
end

function slots.of(q, name)
  local s = q.slots[name]
  if not s then
    local field = 's' .. name
    s = unpacked(field, redis_call('HGET', q.c, field))
    q.slots[name] = s
  end
  if not s.keyed then
    s.keyed, s.unkeyed, s.raised, s.kept, s.keeper, s.opening, s.moved = 0, 0, false, false, false, false, 0
    s.first, s.is_open = { keyed = {}, unkeyed = {} }, false
  end
  return s
end

-- The limit names of a message, sorted by bytes.
function slots.names(m)
  local names = m.names
  if not names then
    names = limit_names.parts_of(m.limit)
    m.names = names
  end
  return names
end

-- Reads the slots of this many names. The lists are reused, as those of the quick path.
local UNREAD = {}
local UNREAD_FIELDS = {}
function slots.read(q, names, count)
  if #UNREAD > STAYS then
    UNREAD, UNREAD_FIELDS = {}, {}
  end
  local known, missing, fields, n = q.slots, UNREAD, UNREAD_FIELDS, 0
  for i = 1, count do
    local name = names[i]
    if known[name] == nil then
      known[name], n = false, n + 1
      missing[n], fields[n] = name, 's' .. name
    end
  end
  local found = fetch(q.c, fields, n)
  for i = 1, n do
    known[missing[i]] = unpacked(fields[i], found[i])
  end
end

-- Reads the slots of the names of these messages.
function slots.look_at(q, messages)
  local all = {}
  for i = 1, #messages do
    local m = messages[i]
    if type(m) == 'table' and m.limit then
      for _, name in ipairs(slots.names(m)) do
        all[#all + 1] = name
      end
    end
  end
  slots.read(q, all, #all)
  if q.timed > q.now then
    rates.read(q, all, #all)
  end
end

-- How many messages may be leased that carry a name, if nobody keeps a slot; NEVER if it has no number.
function slots.most_of(q, name, s)
  local most = s.most
  if not most then
    most = limit_names.limit_of(option(q, 'LIMITS'), name)
    s.rate = type(most) == 'table' and most
    most = s.rate and NEVER or most
    s.most = most
  end
  return most
end

-- How many slots of a name are free, at whatever time.
function slots.unused(q, name)
  local s = slots.of(q, name)
  return slots.most_of(q, name, s) - s.leased - (s.kept and 1 or 0), s
end

-- How many slots of a name are free now.
function slots.room(q, name)
  local unused, s = slots.unused(q, name)
  if s.rate or q.timed > q.now then
    return math.min(unused, rates.allowed(q, name, s))
  end
  return unused
end

function slots.kind_of(m)
  return keyed(m) and 'keyed' or 'unkeyed'
end

local KEYS_OF_LINES = { keyed = 'lk:', unkeyed = 'lu:' }
local MOVED_TO = { keyed = { name = 'ak', count = N.ak }, unkeyed = { name = 'au', count = N.au } }

-- Lines. The first of a line are in a list of scores and places in the name's field, which is sorted; nothing of the rest
-- comes before them. What a call adds to the rest is written before it reads that, or at its end.

local function rest_of_line(q, name, kind)
  local key = KEYS_OF_LINES[kind] .. name
  local rest = q.lines[key]
  if not rest then
    rest = { key = name_of(q, key), added = {} }
    q.lines[key] = rest
  end
  return rest
end

local function write_rest(rest)
  if #rest.added > 0 then
    bulk('ZADD', rest.key, rest.added)
    rest.added = {}
  end
end

-- Where a score and place belong in a sorted list of such pairs.
local function position(list, score, place)
  local at = #list
  while at > 0 and (list[at - 1] > score or list[at - 1] == score and list[at] > place) do
    at = at - 2
  end
  return at + 1
end

local function insert(list, score, place)
  local at = position(list, score, place)
  table.insert(list, at, place)
  table.insert(list, at, score)
end

-- The first of a line, as a list that begins with its score and place.
function slots.first_in_line(q, name, s, kind)
  local first = s.first[kind]
  if #first == 0 then
    local rest = rest_of_line(q, name, kind)
    write_rest(rest)
    local found = redis_call('ZRANGE', rest.key, 0, MOST_FIRST - 1, 'WITHSCORES')
    redis_call('ZREMRANGEBYRANK', rest.key, 0, #found / 2 - 1)
    for i = 1, #found, 2 do
      first[i], first[i + 1] = to_number(found[i + 1]), found[i]
    end
  end
  return first
end

-- Takes the first of a line: its score and place.
function slots.take_first(q, name, s, kind)
  local first = slots.first_in_line(q, name, s, kind)
  s[kind] = s[kind] - 1
  return table.remove(first, 1), table.remove(first, 1)
end

-- A message that was moved from the line of a name has come up, or leaves.
function slots.come_up(q, name, m)
  local s = slots.of(q, name)
  -- An older release did not count them.
  s.moved = math.max(s.moved - 1, 0)
  if m and q.counters[N.grouped] > 0 then
    slots.leave_shared(q, m, name, s)
  end
end

function slots.enter_line(q, m, name)
  local s = slots.of(q, name)
  if q.counters[N.grouped] > 0 then
    slots.enter_shared(q, m, name, s)
  else
    slots.insert(q, name, s, slots.kind_of(m), 0 - priority_of(m), m.place)
  end
end

-- How many messages with a score are behind the first ones of a line.
function slots.count_behind(q, name, kind, score)
  local rest = rest_of_line(q, name, kind)
  write_rest(rest)
  return redis_call('ZCOUNT', rest.key, score, score)
end

-- The first place with a score in a line.
function slots.first_of_score(q, name, s, kind, score)
  local first = s.first[kind]
  for i = 1, #first, 2 do
    if first[i] == score then
      return first[i + 1]
    end
  end
  if s[kind] > #first / 2 then
    local rest = rest_of_line(q, name, kind)
    write_rest(rest)
    return redis_call('ZRANGEBYSCORE', rest.key, score, score, 'LIMIT', 0, 1)[1]
  end
end

-- A message without a group enters a line.
function slots.insert(q, name, s, kind, score, place)
  local first = s.first[kind]
  local behind = s[kind] - #first / 2
  s[kind] = s[kind] + 1
  if behind == 0 and #first < 2 * MOST_FIRST then
    insert(first, score, place)
    return
  elseif #first > 0 and position(first, score, place) <= #first then
    insert(first, score, place)
    if #first <= 2 * MOST_FIRST then
      return
    end
    place, score = table.remove(first), table.remove(first)
  end
  local added = rest_of_line(q, name, kind).added
  added[#added + 1], added[#added + 2] = score, place
end

-- Notes a moved message in a sorted list, which is written once the call has leased, or the list is long.
function slots.move(q, kind, score, place)
  insert(q.moved[kind], score, place)
  if #q.moved[kind] > MANY_MOVED then
    slots.write_moved(q, kind)
  end
  local count = MOVED_TO[kind].count
  q.counters[count] = q.counters[count] + 1
end

-- The first in line for a name with a free slot, or the first few, may be leased. Answers whether there is any.
function slots.move_first(q, name, most)
  local s = slots.of(q, name)
  if q.counters[N.grouped] > 0 then
    q.turns.dirty[name] = true
    return false
  end
  if s.keyed + s.unkeyed == 0 then
    s.raised = false
    return false
  end
  local count, moved = math.min(slots.room(q, name), most or 1), s.moved
  for kind in pairs(KEYS_OF_LINES) do
    for _ = 1, math.min(s[kind], count) do
      slots.move(q, kind, slots.take_first(q, name, s, kind))
      s.moved = s.moved + 1
    end
  end
  s.raised = s.raised and count > 0 and s.keyed + s.unkeyed > 0
  return s.moved > moved
end

-- Whether time may have freed more slots of a name with a rate than messages were moved for. A call moves them once.
function slots.is_behind(s)
  return s.rate and s.keyed and s.keyed + s.unkeyed > 0 and not s.is_open
end

-- Moves them. Answers whether there is any.
function slots.move_behind(q, name)
  slots.of(q, name).is_open = true
  return slots.move_first(q, name, MAX_BATCH)
end

-- Several slots of a name may be free.
function slots.move_several(q, name)
  local s = slots.of(q, name)
  slots.most_of(q, name, s)
  if s.rate then
    slots.move_behind(q, name)
  else
    -- Each that is leased moves the next.
    s.raised = true
    slots.move_first(q, name)
  end
end

-- The first ones that were moved are leased.
function slots.take_moved(q, kind, count)
  local moved, left = q.moved[kind], {}
  for i = 2 * count + 1, #moved do
    left[#left + 1] = moved[i]
  end
  q.moved[kind] = left
  local counter = MOVED_TO[kind].count
  q.counters[counter] = q.counters[counter] - count
end

function slots.write_moved(q, kind)
  local moved = q.moved[kind]
  if #moved > 0 then
    bulk('ZADD', q[MOVED_TO[kind].name], moved)
    q.moved[kind] = {}
  end
end

-- The first that were moved, if none of them is written yet: a list of scores and places; the caller may take of it.
function slots.moved_now(q, kind)
  if not q.slots then
    return nil
  end
  local moved = q.moved[kind]
  if #moved > 0 and #moved / 2 < q.counters[MOVED_TO[kind].count] then
    slots.write_moved(q, kind)
    return nil
  end
  return #moved > 0 and moved
end

function slots.flush(q)
  if q.turns then
    slots.refresh(q)
  end
  slots.write_openings(q)
  for _, rest in pairs(q.lines) do
    write_rest(rest)
  end
  slots.write_moved(q, 'keyed')
  slots.write_moved(q, 'unkeyed')
  local listed, gone, times = {}, {}, nil
  for name, s in pairs(q.slots) do
    if s.charged then
      times = times or {}
      times[#times + 1], times[#times + 2] = digits(s.even), 't' .. name
    end
    if q.counters[N.grouped] == 0 then
      s.shared = false
    end
    local text = stored_form(s)
    if text ~= s.text then
      if text then
        set_field(q, s.field, text)
      else
        del_field(q, s.field)
      end
      local was_listed = s.text and string_byte(s.text) >= 128
      if is_listed(s) and not was_listed then
        listed[#listed + 1], listed[#listed + 2] = 0, name
      elseif was_listed and not is_listed(s) then
        gone[#gone + 1] = name
      end
      s.text = text
    end
  end
  bulk('ZADD', q.sn, listed)
  bulk('ZREM', q.sn, gone)
  if times then
    rates.write(q, times)
  end
  for name in pairs(q.slots) do
    q.slots[name] = nil
  end
  -- The next call has a table that need not grow.
  slots.spare, q.slots = q.slots, false
end

local function remove_from(list, place)
  for i = 2, #list, 2 do
    if list[i] == place then
      table.remove(list, i)
      table.remove(list, i - 1)
      return true
    end
  end
end

-- Removes a message without a group from a line. Answers whether it was there.
function slots.remove_from_line(q, name, s, kind, place)
  local in_line = remove_from(s.first[kind], place)
  if not in_line and s[kind] > #s.first[kind] / 2 then
    local rest = rest_of_line(q, name, kind)
    write_rest(rest)
    in_line = redis_call('ZREM', rest.key, place) == 1
  end
  s[kind] = s[kind] - (in_line and 1 or 0)
  return in_line
end

-- Removes one from what was moved from lines.
function slots.move_back(q, kind, place)
  local source = MOVED_TO[kind]
  if not remove_from(q.moved[kind], place) then
    redis_call('ZREM', q[source.name], place)
  end
  q.counters[source.count] = q.counters[source.count] - 1
end

-- Removes a message from its line, or from what was moved from it. Answers whether it was in the line.
function slots.remove(q, m, name)
  if q.counters[N.grouped] > 0 then
    return slots.remove_shared(q, m, name)
  end
  local kind = slots.kind_of(m)
  if name then
    if slots.remove_from_line(q, name, slots.of(q, name), kind, m.place) then
      return true
    end
    slots.come_up(q, name)
  end
  slots.move_back(q, kind, m.place)
  return false
end
