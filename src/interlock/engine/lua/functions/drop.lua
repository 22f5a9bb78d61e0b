-- il1_drop: [FORCE]
-- Removes the queue, with its declaration; without FORCE only if nothing is unsettled. Answers 1 if it is
-- gone, 0 if it is not or never was, and what there was: unsettled, leased, dead, results.
--
-- What stays for a while is `series`, where those ended, for no id and no token may come again (clause
-- 8), and the last replies of its consumers, for calls that are sent again. Who waits is woken, and asks anew.

local FORCE = { FORCE = true, told = 'FORCE' }

-- The keys of which there may be any number.
local function open_ended(q)
  local names = {}
  local function add(part, list)
    for i = 1, #list do
      names[#names + 1] = name_of(q, part .. list[i])
    end
  end
  local function gates(places)
    add('g:', places)
    for i = 1, #places do
      local list = name_of(q, 'g:' .. places[i])
      for _, place in ipairs(redis.call('LRANGE', list, 0, -1)) do
        if string.byte(place) == 62 then -- '>'
          gates({ string.sub(place, 2) })
        end
      end
    end
  end
  gates(redis.call('ZRANGE', q.ba, 0, -1))
  gates(redis.call('LRANGE', q.opening, 0, -1))
  add('park:', redis.call('HKEYS', q.pk))
  add('back:', redis.call('LRANGE', q.back, 0, -1))
  return names
end

-- What a consumer was last answered may be read from its lease.
local function fix_replies(q)
  local tokens = redis.call('HKEYS', q.t)
  for i = 1, #tokens do
    fix_reply(q, tokens[i], lease_of(q, tokens[i]).consumer)
  end
end

local function wake_to_leave(q)
  local c = q.counters
  if c[N.wake_until] > q.now then
    for _, kind in ipairs({ 'any', 'keyed', 'unkeyed' }) do
      wake(q, kind, q['wake:' .. kind], NEVER)
    end
  end
  if c[N.room_until] > q.now then
    wake(q, 'room', q.room, NEVER)
  end
end

local ALL = {
  'c', 'o', 'p', 'y', 'lt', 'al', 'l', 'n', 'v', 'fk', 'rk', 'fu', 'ru', 't', 'due', 'u', 'uw', 'x', 'xo',
  'res', 'rz', 'ro', 'pk', 'back', 'ba', 'bn', 'opening', 'late', 'unf', 'w:any', 'w:keyed', 'w:unkeyed',
  'w:room', 'told:any', 'told:keyed', 'told:unkeyed',
}

register('drop', { 'allow-oom' }, function(q, from)
  local force = more(from) and take_word(from, FORCE, 'force')
  take_end(from)
  q.caller = false
  local c = begin(q)
  local existed = q.loaded
  local reply = {
    existed and (force or c[N.unsettled] == 0) and '1' or '0',
    digits(c[N.unsettled]), digits(c[N.leased]), digits(c[N.dead]), digits(c[N.results]),
  }
  if not existed then
    return reply
  end
  commit(q)
  if reply[1] == '0' then
    return reply
  end
  fix_replies(q)
  wake_to_leave(q)
  local names = open_ended(q)
  for i = 1, #ALL do
    names[#names + 1] = q[ALL[i]]
  end
  for first = 1, #names, CHUNK do
    redis.call('UNLINK', unpack(names, first, math.min(first + CHUNK - 1, #names)))
  end
  local ahead = math.max(c[N.seq], c[N.fence]) - q.now
  redis.call('SET', q.series, digits(c[N.seq]) .. ' ' .. digits(c[N.fence]), 'PX',
    digits(KEPT_REPLY_MS + math.max(0, math.ceil(ahead / 1000))))
  return reply
end)
