-- The counters of a queue, two strings of doubles; the first begins with the number of the layout
-- in which the queue is stored, in one byte: a later one only while the queue uses what libraries of earlier ones do not
-- know. Most calls change some of the first ones: the series
-- of ids (seq) and of tokens (fence), a time before which nothing is due, how long the lists of the
-- ready are, the number of lanes with more than one node (crowded), and of messages with limit names (gated).
--
-- The second string exists, and the counter rare is 1, once one of the other counters differs from a new queue:
-- the number of deaths, the lengths of the sorted sets of ready messages, the number of stale entries in the
-- lists, and rare events. While rare is 0, these counters need not be read.

-- The number of each: c[N.seq]. Names in the table itself would cost five times the loading.
local N = {}
for i = 1, #DECLARED.counters do
  N[DECLARED.counters[i]] = i
end
local FIRST_RARE, LAST = N.rare + 1, #DECLARED.counters

-- Their values in a new queue.
local NEW = {}
for i = 1, LAST do
  NEW[i] = 0
end
NEW[N.due], NEW[N.result_due], NEW[N.kept_due], NEW[N.dead_due] = NEVER, NEVER, NEVER, NEVER

-- The layout of a queue that uses nothing of later ones, of one with groups, of one with messages that may leave their
-- places, of one with coalescing names, and of one with runs: older libraries refuse only the queues that they would damage.
local PLAIN_LAYOUT = 3
local GROUPED_LAYOUT = 4
local BEHIND_LAYOUT = 5
local COALESCED_LAYOUT = 6
local RUNS_LAYOUT = 7

-- Made by the first call: `string` does not exist while a library is loaded.
local STORED, COMMON_LAYOUT, RARE_LAYOUT, NEW_RARE, COMMON_SIZE = nil, nil, nil, nil, nil

-- The table of a queue whose rare counters are as in a new one lacks them until one is set.
local RARELY = {
  __index = NEW,
  __newindex = function(c, i, value)
    for r = FIRST_RARE, LAST do
      rawset(c, r, NEW[r])
    end
    c[N.rare], c[i] = 1, value
  end,
}

-- The counters of a queue that another release has stored, in the present layout. The second layout lacked the counter
-- gated, the last but one, and the first also the number: the first call that writes adds them.
local function as_of_now(text)
  if #text == COMMON_SIZE - 9 then
    text = '\2' .. text
  end
  if #text == COMMON_SIZE - 8 and string_byte(text) == 2 then
    return string.char(PLAIN_LAYOUT) .. string_sub(text, 2, -9) .. struct_pack('d', 0) .. string_sub(text, -8)
  end
  -- A later layout has at least as many counters, after its number.
  local layout = #text >= COMMON_SIZE and #text % 8 == 1 and string_byte(text)
  if layout and layout > LAYOUT then
    refuse('NEWERLAYOUT', 'the queue is stored in layout %d, and the library of release %s knows them up to %d; '
      .. 'a client of the release that stored it, or its `interlock queue install`, brings the one that does',
      layout, ABOUT.release, LAYOUT)
  end
  refuse('NOTAQUEUE', 'what is stored under the name of the queue is not a queue of a release that library %s knows',
    ABOUT.release)
end

local function load_counters(q)
  if not COMMON_LAYOUT then
    COMMON_LAYOUT, RARE_LAYOUT = string.rep('d', N.rare), string.rep('d', LAST - N.rare)
    STORED, COMMON_SIZE = 'B' .. COMMON_LAYOUT, 8 * N.rare + 1
    NEW_RARE = struct_pack(RARE_LAYOUT, table_unpack(NEW, FIRST_RARE, LAST))
  end
  -- A call that looked for its kept reply has read them already: '' if they do not exist.
  local text, c = q.ahead or redis_call('HGET', q.c, 'c'), nil
  if text and text ~= '' then
    local layout = string_byte(text)
    if #text ~= COMMON_SIZE or layout < PLAIN_LAYOUT or layout > LAYOUT then
      text = as_of_now(text)
    end
    c = { struct_unpack(COMMON_LAYOUT, text, 2) }
    -- The position of their end follows the values.
    c[FIRST_RARE] = nil
    if c[N.rare] > 0 then
      local rare = redis_call('HGET', q.c, 'd')
      -- An older release had fewer counters, and some ignored the age of dead letters.
      local is_old = #rare < #NEW_RARE
      q.unindexed = #rare < 8 * (N.dying - N.rare)
      rare = rare .. string_sub(NEW_RARE, #rare + 1)
      c = { struct_unpack(COMMON_LAYOUT .. RARE_LAYOUT, text .. rare, 2) }
      c[LAST + 1] = nil
      if is_old then
        c[N.dead_due] = 0
      end
      q.rare = rare
    end
  else
    c = setmetatable({ table_unpack(NEW, 1, N.rare) }, RARELY)
    -- It may have been dropped a moment ago: its series continue.
    local ended = redis_call('HGET', q.series, 'c')
    if ended then
      local seq, fence = string_match(ended, '^(%d+) (%d+)$')
      c[N.seq], c[N.fence], q.revived = to_number(seq), to_number(fence), true
    end
    local watched = redis_call('GET', q['w:events'])
    if watched then
      c[N.watched], c[N.event_last] = struct_unpack('dd', watched)
    end
  end
  q.counters, q.loaded = setmetatable(c, RARELY), text
  return c
end

-- Whether any message may leave its place: see shut_keys.lua.
local function may_leave(c)
  return c[N.rare] > 0 and c[N.behind] + c[N.own] + c[N.parked] > 0
end

-- Adds them to what this call writes, where they were changed.
local function save_counters(q)
  local c = q.counters
  if rawget(c, FIRST_RARE) then
    local rare = struct_pack(RARE_LAYOUT, table_unpack(c, FIRST_RARE, LAST))
    c[N.rare] = rare == NEW_RARE and 0 or 1
    if c[N.rare] == 0 then
      if q.rare then
        del_field(q, 'd')
      end
    elseif rare ~= q.rare then
      set_field(q, 'd', rare)
    end
  end
  local layout = c[N.running] > 0 and RUNS_LAYOUT
    or c[N.coalescing] > 0 and COALESCED_LAYOUT or may_leave(c) and BEHIND_LAYOUT
    or c[N.grouped] > 0 and GROUPED_LAYOUT or PLAIN_LAYOUT
  local text = struct_pack(STORED, layout, table_unpack(c, 1, N.rare))
  if text ~= q.loaded then
    set_field(q, 'c', text)
  end
end

-- The next number of a series: the larger of the last one plus 1 and the time, so that none is
-- reused even if a failover lost the last ones (clause 8).
local function draw(q, series)
  local c = q.counters
  local number, now = c[series] + 1, q.now
  if number <= now then
    c[series] = now
    return q.stamp or digits(now)
  end
  c[series] = number
  return digits(number)
end
