-- What falls due: each call first applies it, at its time (clause 20). One sorted set has it all, the
-- time its score; a letter says what: a and a token, for a lease's deadline; b and an id, backing off;
-- d and an id, delayed; o, a member and a key, readers that a call before could not ready any more. Of
-- what is due at one time the set gives a before b before d, which is the clause's order.

local function end_backoffs(q, ids)
  for _, m in ipairs(records(q, ids)) do
    push_back(q, m)
  end
  redis.call('HINCRBY', q.c, 'backing_off', -#ids)
end

-- A delayed message takes its sequence now, behind everything put before (clause 12).
local function end_delays(q, now, ids)
  local messages = records(q, ids)
  local first = draw(q, 'seq', now, #ids)
  for i, m in ipairs(messages) do
    m.sequence = digits(first + i - 1)
  end
  local ready = link(q, messages)
  local packed = {}
  for _, m in ipairs(messages) do
    packed[#packed + 1] = m.id
    packed[#packed + 1] = pack(m)
  end
  bulk('HSET', q.p, packed)
  push_ready(q, ready)
  redis.call('HINCRBY', q.c, 'delayed', -#ids)
end

local function open_rest(q, entries)
  local freed = {}
  for _, entry in ipairs(entries) do
    redis.call('ZREM', q.due, 'o' .. entry)
    open_members(q, string.sub(entry, 1, 16), string.sub(entry, 17), freed)
  end
  unblock(q, freed)
end

-- As many as the call may still apply; the others stay in the set.
local function part(q, letter, list, left)
  local ids, members = {}, {}
  for i = 1, math.min(#list, left) do
    ids[i] = list[i]
    members[i] = letter .. list[i]
  end
  bulk('ZREM', q.due, members)
  return ids
end

local function apply_due(q, now)
  local due = redis.call('ZRANGEBYSCORE', q.due, '-inf', digits(now), 'LIMIT', 0, MAX_DUE)
  if #due == 0 then
    return
  end
  local of = { a = {}, b = {}, d = {}, o = {} }
  for _, member in ipairs(due) do
    local list = of[string.sub(member, 1, 1)]
    list[#list + 1] = string.sub(member, 2)
  end
  open_rest(q, of.o)
  local left = expire(q, now, of.a, MAX_DUE)
  local ids = part(q, 'b', of.b, left)
  if #ids > 0 then
    end_backoffs(q, ids)
    left = left - #ids
  end
  ids = part(q, 'd', of.d, left)
  if #ids > 0 then
    end_delays(q, now, ids)
  end
end
