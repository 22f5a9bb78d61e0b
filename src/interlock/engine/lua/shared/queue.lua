-- The names of a queue's keys. All begin with its name in braces, so that a cluster keeps them on one
-- node. A name is put together when it is first asked for: q.due is il:{name}:due.
--
-- | key | holds |
-- |---|---|
-- | c, o | the counters, in one string; the options, if any were declared |
-- | p, y | unsettled messages by their place; payloads that are long, by id |
-- | al | of messages that were delayed: the place of an id |
-- | l, n, v | lanes by key; the node behind and the node before a place on a key |
-- | fk, rk, fu, ru | the ready: as they were put, and the others; with keys, and without |
-- | t, due | leases by token; all that falls due, by time |
-- | u, uw | dedup strings; those that are forgotten, by time |
-- | x, xo | dead letters by id; the order in which they died |
-- | res, rz, ro | results by id; when they go; in which order they came |
-- | pk, park:KEY, back, back:N | paused keys; the ready that they hold; what is on its way back |
-- | ba, bn, g:PLACE, opening | barriers; messages behind each; their gates; those that open |
-- | late, unf | what one call could not ready: messages, lanes |
-- | w:KIND, told:KIND, wake:KIND | who waits until when, and for what falls due; what wakes them |
-- | w:room, room | the same of those who wait for room |
-- | k:CONSUMER | the consumer's last reply |
local NAMES = {
  __index = function(q, part)
    local name = q[1] .. ':' .. part
    q[part] = name
    return name
  end,
}

local function queue_of(called, keys)
  local name = keys[1]
  if #keys ~= 1 or not string.find(name, '^il:{[^{}]+}$') then
    refuse('BADARG', '%s: takes one key, il:{name}, without other braces', called)
  elseif #name - 5 > MAX_NAME then
    refuse('BADARG', '%s: the name has %d bytes; at most %d', called, #name - 5, MAX_NAME)
  end
  return setmetatable({ name }, NAMES)
end
