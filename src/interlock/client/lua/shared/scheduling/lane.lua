-- Lanes (clauses 1 to 5, 21). A lane is a chain of nodes, one for each unsettled message on the key, in
-- sequence. A node is a mode, x or s, and a place. The hash c knows the lane by its key; n leads from a
-- place and key to the node behind, v to the one before. In front stand those that nothing on this key
-- holds up: one exclusive node, or a run of shared ones.
--
-- | c | |
-- |---|---|
-- | six bytes | the only one, exclusive, as most lanes have: the low bits of its place |
-- | NODE | the only one, shared |
-- | `X` head tail depth | an exclusive node in front; all behind it wait |
-- | `S` head tail first active depth | number of shared nodes in front; first: the first one waiting |

local NOBODY = '-----------------'

-- Six bytes take half the server memory of seven. They identify the place, because no place is
-- larger than the last one, and none is unsettled for 2^48 µs, nine years.
local function short_node(place)
  return struct_pack('>I6', place)
end

local function long_node(q, text)
  local last = q.counters[N.seq]
  return 'x' .. digits(last - (last - struct_unpack('>I6', text)) % 281474976710656)
end

-- The content of a field of c, if it is a lane.
local function key_of_lane(field)
  return string_byte(field) <= 4 and string_sub(field, 3)
end

-- Whether there is only one node.
local function single(text)
  return #text <= 17
end

local function lane_of(q, text)
  if single(text) then
    local shared = #text == 17
    local node = shared and text or long_node(q, text)
    return { kind = shared and 'S' or 'X', head = node, tail = node, active = 1, depth = 1 }
  end
  local lane = {
    kind = string_sub(text, 1, 1), head = string_sub(text, 2, 18), tail = string_sub(text, 19, 35),
  }
  if lane.kind == 'X' then
    lane.active, lane.depth = 1, to_number(string_sub(text, 36))
  else
    lane.first = string_sub(text, 36, 52)
    if lane.first == NOBODY then
      lane.first = nil
    end
    lane.active, lane.depth = to_number(string_sub(text, 53, 62)), to_number(string_sub(text, 63))
  end
  return lane
end

-- The smallest depth of a lane's class, from 3 on: two classes share each doubling, so that a class begins at 1 or 1.5
-- times a power of two. A lane that goes up and down between one and two messages costs nothing.
local function class_of(depth)
  if depth < 3 then
    return 0
  end
  local part, power = math.frexp(depth)
  return (part < 0.75 and 0.5 or 0.75) * 2 ^ power
end

-- A lane is as deep as `depth`, and `deeper` is where it was or that: if a class begins there, the lane has another
-- one. The call writes it at its end (see write_classes()).
local function note_depth(q, key, depth, deeper)
  local part = math.frexp(deeper)
  if (part == 0.5 or part == 0.75) and deeper > 2 then
    q.classes = q.classes or {}
    q.classes[key] = class_of(depth)
  end
end

-- Lanes of one or two messages are not in dep.
local function write_classes(q)
  local listed, gone = {}, {}
  for key, class in pairs(q.classes) do
    if class == 0 then
      gone[#gone + 1] = key
    else
      listed[#listed + 1], listed[#listed + 2] = digits(class), key
    end
  end
  bulk('ZADD', q.dep, listed)
  bulk('ZREM', q.dep, gone)
  q.classes = false
end

local function lane_text(lane)
  if lane.depth == 1 then
    local shared = string_byte(lane.head) == 115 -- 's'
    return shared and lane.head or short_node(string_sub(lane.head, 2))
  elseif lane.kind == 'X' then
    return 'X' .. lane.head .. lane.tail .. lane.depth
  end
  return string_format('S%s%s%s%010d%d', lane.head, lane.tail, lane.first or NOBODY, lane.active, lane.depth)
end

-- Whether all keys of the first list are in the second, which has as many.
local function same_keys(keys, others)
  local has = {}
  if #keys ~= #others then
    return false
  end
  for i = 1, #others do
    has[others[i]] = true
  end
  for i = 1, #keys do
    if not has[keys[i]] then
      return false
    end
  end
  return true
end

-- The interface to other files: one table, because a library is limited to 200 names.
local lanes = {
  short_node = short_node, key_of = key_of_lane, is_single = single, of = lane_of, note_depth = note_depth,
  write_classes = write_classes, text = lane_text, same_keys = same_keys,
}
