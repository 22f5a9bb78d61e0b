-- Lanes (clauses 1 to 5, 21). A lane is a chain of nodes, one for each unsettled message on the key, in
-- sequence. A node is a mode, x or s, and a place. The hash l knows the lane by its key; n leads from a
-- place and key to the node behind, v to the one before. In front stand those that nothing on this key
-- holds up: one exclusive node, or a run of shared ones.
--
-- | l | |
-- |---|---|
-- | NODE | the only one, which most lanes have |
-- | `X` head tail depth | an exclusive node in front; all behind it wait |
-- | `S` head tail first active depth | so many shared nodes in front; first is the first that waits |

-- Up to 128 small fields the server keeps as a list, in which every lookup goes through all before it. One
-- long value makes a table of it: once more than a few messages are unsettled, l has one, under the key
-- that no message can have, and the counter `wide` is 1.
local FILLER = '-----------------------------------------------------------------'
local WIDE = 8

local NOBODY = '-----------------'

local function lane_of(text)
  if #text == 17 then
    local shared = string.byte(text) == 115 -- 's'
    return { kind = shared and 'S' or 'X', head = text, tail = text, active = 1, depth = 1 }
  end
  local lane = {
    kind = string.sub(text, 1, 1), head = string.sub(text, 2, 18), tail = string.sub(text, 19, 35),
  }
  if lane.kind == 'X' then
    lane.active, lane.depth = 1, tonumber(string.sub(text, 36))
  else
    lane.first = string.sub(text, 36, 52)
    if lane.first == NOBODY then
      lane.first = nil
    end
    lane.active, lane.depth = tonumber(string.sub(text, 53, 62)), tonumber(string.sub(text, 63))
  end
  return lane
end

local function lane_text(lane)
  if lane.depth == 1 then
    return lane.head
  elseif lane.kind == 'X' then
    return 'X' .. lane.head .. lane.tail .. lane.depth
  end
  return string.format('S%s%s%s%010d%d', lane.head, lane.tail, lane.first or NOBODY, lane.active, lane.depth)
end

local function widen(q)
  local c = q.counters
  if c[N.wide] == 0 and c[N.unsettled] > WIDE then
    redis.call('HSET', q.l, '', FILLER)
    c[N.wide] = 1
  end
end

local function narrow(q)
  local c = q.counters
  if c[N.wide] == 1 and c[N.unsettled] == 0 then
    redis.call('DEL', q.l)
    c[N.wide] = 0
  end
end
