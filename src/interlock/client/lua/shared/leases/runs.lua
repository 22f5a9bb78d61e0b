-- Runs (clause 30): messages that are leased with the one before them in all of their lanes, and wait for it. The first one is
-- the head, whose lease it is; the others are its riders. A rider's record has the state Y, the token, and how many
-- riders are behind it, whose places follow its own in the lease.
--
-- The next rider has the lease once the head is settled (see lanes.lua). If the head's lease ends in another way, its riders
-- wait again as if they had never been leased.

-- Messages of a lane that are read ahead: the first ones, and at most.
local FIRST_READ = 4
local MOST_READ = 64

-- A table of functions: a library is limited to 200 names.
local runs = {}

-- Whether a message may be in a run. One whose lease ended once is leased by itself.
function runs.may_have(m)
  local extras = m.extras
  return extras and extras.RUN and #m.exclusive > 0 and not extras.ALONE and not behind.was_handed_out(m)
end

-- The run of a message that has just been leased, before anything rides.
function runs.begin(head)
  return {
    head = head, last = head, key = head.exclusive[1], left = to_number(string_match(head.extras.RUN, '^%d+')) - 1,
    found = NONE, at = 0, most = FIRST_READ,
  }
end

-- Reads some of the messages that follow the last one in the lane of its first key, and what is before each in its other lanes.
local function read_on(q, run)
  local n, head, place, places, fields = hash(q, 'n'), run.head, run.last.place, {}, {}
  while #places < math.min(run.left, run.most) do
    local node = get(n, place .. run.key)
    if not node then
      break
    end
    place = string_sub(node, 2)
    places[#places + 1] = place
  end
  run.found, run.at, run.most = messages_at(q, places), 0, math.min(4 * run.most, MOST_READ)
  for _, m in ipairs(run.found) do
    for _, key in ipairs(#m.exclusive == #head.exclusive and #m.shared == #head.shared and behind.keys_of(m) or NONE) do
      if key ~= run.key then
        fields[#fields + 1] = m.place .. key
      end
    end
  end
  prefetch(hash(q, 'v'), fields)
  if q.slots then
    slots.look_at(q, run.found)
  end
end

-- Whether a message that follows the last one in one lane may ride: it waits for that alone, and nothing tells them apart.
local function may_ride(q, run, m)
  local head = run.head
  if m.state ~= 'W' or m.blocked ~= #m.exclusive or not runs.may_have(m) or m.extras.RUN ~= head.extras.RUN
    or m.group ~= head.group or priority_of(m) ~= priority_of(head)
    or not lanes.same_keys(m.exclusive, head.exclusive) or not lanes.same_keys(m.shared, head.shared) then
    return false
  end
  local v = hash(q, 'v')
  for _, key in ipairs(behind.keys_of(m)) do
    local before = key ~= run.key and get(v, m.place .. key)
    if key ~= run.key and not (before and string_sub(before, 2) == run.last.place) then
      return false
    end
  end
  for _, name in ipairs(m.limit and slots.names(m) or NONE) do
    if slots.room(q, name) < 1 then
      return false
    end
  end
  return true
end

-- The next message that may ride; nil at the end of the run.
function runs.next(q, run)
  if run.left > 0 and run.at == #run.found then
    read_on(q, run)
  end
  local m = run.left > 0 and run.found[run.at + 1]
  if not m or not may_ride(q, run, m) then
    return nil
  end
  run.last, run.at, run.left = m, run.at + 1, run.left - 1
  return m
end

-- The riders of a leased message, in order.
function runs.riders(q, m)
  local lease = q.counters[N.riding] > 0 and m.extras and m.extras.RUN and leases.of(q, m.token)
  local first = lease and leases.places_behind(lease, m.place, 1)[1]
  local rider = first and message_at(q, first)
  if not rider or rider.state ~= 'Y' or rider.token ~= m.token then
    return NONE
  end
  return messages_at(q, leases.places_behind(lease, m.place, 1 + rider.riders))
end

-- The riders of a message wait again, because its lease ends without settling it. Answers how many they are.
function runs.part(q, riders)
  local c = q.counters
  if q.slots and #riders > 0 then
    slots.look_at(q, riders)
  end
  for i = 1, #riders do
    local rider = riders[i]
    rider.state = 'W'
    changed(q, rider)
    if rider.limit then
      slots.free(q, rider)
    end
  end
  if #riders > 0 then
    c[N.riding] = c[N.riding] - #riders
  end
  return #riders
end
