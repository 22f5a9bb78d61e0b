-- The names of a queue's keys. All begin with its name in braces, so that a cluster keeps them on one
-- node. A name is put together when it is first asked for: q.due is il:{name}:due.
--
-- | key | holds |
-- |---|---|
-- | c | what nearly every call reads and writes, see below |
-- | o | the options, if any were declared |
-- | y | payloads that are long, by id |
-- | al | of messages that were delayed or parked: the place of an id |
-- | n, v | the node behind and the node before a place on a key |
-- | dep | the keys of lanes of three or more messages, by the class of their depth |
-- | fk, rk, fu, ru | the ready: as they were put, and the others; with keys, and without |
-- | due | all that falls due, by time |
-- | u, uw | dedup strings; those that are forgotten, by time |
-- | x, xo, xk | dead letters by id; the order in which they died; those of each key (see outcome.lua) |
-- | res, rz, ro | results by id; when they go; in which order they came |
-- | pk, park:KEY, back, back:N | paused keys; the ready that they have set aside; what is on its way back |
-- | ck, st:KEY, pb:KEY, pa, po, sw, sc, sk | stuck and parked messages, and sweeps: see shut_keys.lua |
-- | held | the places of held messages |
-- | ak, au, lk:NAME, lu:NAME, sn, keep | what a limit has refused: see slots.lua |
-- | rt | times of limit names with a rate, and of closed ones |
-- | gr, gm, lr:NAME, gq, go | turns of groups: see turns.lua |
-- | ba, bn, g:PLACE, opening | barriers; messages behind each; their gates; those that open |
-- | late, unf | what one call could not ready: messages, lanes |
-- | w:KIND, told:KIND, wake:KIND | who waits until when, and for what falls due; what wakes them |
-- | w:room, w:needs, w:turn | who waits for room, in line; until when, for how much; whose turn it is |
-- | room:CONSUMER | what wakes one of them |
-- | w:settled, settled:ID, settled:all | the same of those who wait until a message, or all, are settled |
-- | ko, k:CONSUMER | of whom a reply is kept, by a time of which none is older; that reply, if it is long |
-- | series | of a queue that was dropped: where its series ended, and what is kept of replies |
--
-- A command costs more than what it does, so all that most calls ask for is in one hash: a call reads it
-- with one command and writes it with one. The fields of c:
--
-- | field | holds |
-- |---|---|
-- | c, d | the counters that all calls change; the others, unless all are as in a new queue |
-- | PLACE | an unsettled message, by its place |
-- | LANE | a lane: the length of its key, in two bytes, and the key |
-- | m PLACE | of leased messages whose records do not say so: the token |
-- | t TOKEN | a lease |
-- | k CONSUMER | the consumer's last reply |
-- | s NAME | the slots of a limit name |
-- | g, g NAME GROUP | places of groups in their turns |
-- | n NAME | of a coalescing name: the id of its newest message |
--
-- No two kinds meet: a place begins with a digit, a length with a byte of at most 4.
local NAMES = {
  __index = function(q, part)
    local name = q[1] .. ':' .. part
    q[part] = name
    return name
  end,
}

-- A name that is put together each time: there may be any number of these.
local function name_of(q, part)
  return q[1] .. ':' .. part
end

-- Tables of queues stay from call to call for their names, and the options last read. What else is in them begins
-- anew with look().
local QUEUES = {}
local KNOWN = { count = 0, most = 100 }

-- At the end of a call: messages are large. `clean`: nothing is in its tables, so that the next one has them.
local function let_go(q, clean)
  q.counters, q.loaded, q.rare, q.ahead, q.kept = false, false, false, false, false
  q.options, q.first, q.caller, q.classes = false, false, false, false
  q.forgot, q.stamp, q.unindexed = false, false, false
  q.ended, q.revived, q.slots, q.turns = false, false, false, false
  if not clean then
    q.hashes, q.used, q.messages, q.changed, q.granted = false, false, false, false, false
    q.written, q.gone, q.pushed = false, false, false
  end
end

local function queue_of(called, keys)
  local name = keys[1]
  local q = #keys == 1 and QUEUES[name]
  if q then
    return q
  end
  if #keys ~= 1 or not string_find(name, '^il:{[^{}]+}$') then
    refuse('BADARG', '%s: takes one key, il:{name}, without other braces', called)
  elseif #name - 5 > MAX_NAME then
    refuse('BADARG', '%s: the name has %d bytes; at most %d', called, #name - 5, MAX_NAME)
  end
  if KNOWN.count == KNOWN.most then
    QUEUES, KNOWN.count = {}, 0
  end
  q = setmetatable({ name, options_text = false, options_read = false }, NAMES)
  let_go(q)
  QUEUES[name], KNOWN.count = q, KNOWN.count + 1
  return q
end
