-- il1_drop: [FORCE]
-- Removes the queue, with its declaration; without FORCE only if nothing is unsettled. Answers 1 if it was
-- removed, 0 if it was not or never existed, and its counts: unsettled, leased, dead, results.
--
-- For a while it keeps `series`, the ends of the series, because no id and no token may be reused
-- (clause 8), and the last replies of its consumers, for repeated calls. Waiters are woken, and ask
-- anew.

local FORCE = { FORCE = true, told = 'FORCE' }

-- The keys that may exist in any number.
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
      for _, place in ipairs(redis_call('LRANGE', list, 0, -1)) do
        if string_byte(place) == 62 then -- '>'
          gates({ string_sub(place, 2) })
        end
      end
    end
  end
  gates(redis_call('ZRANGE', q.ba, 0, -1))
  gates(redis_call('LRANGE', q.opening, 0, -1))
  for _, name in ipairs(redis_call('ZRANGE', q.sn, 0, -1)) do
    add('lk:', { name })
    add('lu:', { name })
    add('lr:', { name })
  end
  for _, keys in ipairs({ redis_call('HKEYS', q.pk), redis_call('HKEYS', q.ck), redis_call('ZRANGE', q.po, 0, -1) }) do
    add('park:', keys)
    add('st:', keys)
    add('pb:', keys)
  end
  for _, m in ipairs(q.counters[N.dying] > 0 and messages_at(q, redis_call('ZRANGE', q.held, 0, -1)) or NONE) do
    add('st:', behind.keys_of(m))
  end
  add('back:', redis_call('LRANGE', q.back, 0, -1))
  return names
end

-- Kept replies, with their fields. A reply may be read from the lease that it describes.
local function replies_of(q)
  local consumers, fields, kept = redis_call('ZRANGE', q.ko, 0, -1), {}, {}
  for i = 1, #consumers do
    fields[i] = 'k' .. consumers[i]
  end
  for i, text in ipairs(fetch(q.c, fields)) do
    if text then
      local head = string_match(text, '^(%d+ %S+ )l')
      kept[#kept + 1] = fields[i]
      kept[#kept + 1] = head and forms.short_of(q, consumers[i], head, forms.reply_of(q, text, consumers[i])) or text
    end
  end
  return kept
end

local ALL = {
  'c', 'o', 'y', 'al', 'n', 'v', 'dep', 'fk', 'rk', 'fu', 'ru', 'due', 'u', 'uw', 'x', 'xo', 'xk', 'res', 'rz', 'ro',
  'pk', 'back', 'held', 'ba', 'bn', 'opening', 'ak', 'au', 'sn', 'keep', 'rt', 'gr', 'gm', 'gq', 'go',
  'ck', 'pa', 'po', 'sw', 'sc', 'sk',
  'late', 'unf', 'ko', 'w:any', 'w:keyed', 'w:unkeyed', 'w:room', 'w:needs',
  'w:turn', 'w:settled',
  'told:any', 'told:keyed', 'told:unkeyed', 'ev', 'w:events',
  'workers', 'workers:until', 'workers:said', 'workers:asked',
}

register('drop', function(q, from)
  local force = more(from) and take.word(from, FORCE, 'force')
  take_end(from)
  q.caller = false
  local c = begin(q)
  -- A consumer that was merely asked is not one.
  local existed = q.loaded and q.loaded ~= ''
    and c[N.puts] + c[N.died] + c[N.declared] + c[N.paused] + c[N.halted] + c[N.sealed] > 0
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
  local kept = replies_of(q)
  waiters.wake_to_leave(q)
  local names = open_ended(q)
  for i = 1, #ALL do
    names[#names + 1] = q[ALL[i]]
  end
  for first = 1, #names, CHUNK do
    redis_call('UNLINK', table_unpack(names, first, math.min(first + CHUNK - 1, #names)))
  end
  kept[#kept + 1], kept[#kept + 2] = 'c', digits(c[N.seq]) .. ' ' .. digits(c[N.fence])
  redis_call('UNLINK', q.series)
  bulk('HSET', q.series, kept)
  local ahead = math.max(c[N.seq], c[N.fence]) - q.now
  redis_call('PEXPIRE', q.series, digits(math.ceil((KEPT_REPLY + math.max(0, ahead)) / 1000)))
  return reply
end)
