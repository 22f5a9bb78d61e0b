-- Answers of plain calls, and the short forms in which such replies are kept (see replies.lua). A
-- reply is nearly never asked for again, so keeping it has to be cheap.
--
-- | form | | the reply |
-- |---|---|---|
-- | r | packed | as it was |
-- | o | | the same, in k:CONSUMER: it is long |
-- | p | first id, count | of a put whose ids follow each other |
-- | l | token, deadline, settled | of a lease of plain messages, after a count of `ACKED`; -1: of il1_lease |

local lease_from, places_of = leases.from, leases.places

-- The strings of small numbers.
local COUNT = {}
for i = 0, 128 do
  COUNT[i] = i .. ''
end

-- The part of a plain message in a lease's reply, after `at`; answers its end.
local function tell_plain(place, text, reply, at)
  -- 'L': the token is in between.
  local from = string_byte(text) == 76 and 18 or 2
  local flags, high, low, long, short = string_byte(text, from, from + 4)
  if flags ~= 48 then
    -- A limit name, or a group.
    from = from + 2 + high * 256 + low
    high, low, long, short = string_byte(text, from + 1, from + 4)
  end
  local count = high * 256 + low
  local first, key = from + 3, at + 6
  reply[at + 1], reply[at + 2], reply[at + 3] = place, '', '1'
  reply[at + 5], reply[at + 6] = COUNT[count] or tostring(count), '0'
  for k = 1, count do
    if k > 1 then
      long, short = string_byte(text, first, first + 1)
    end
    local last = first + 1 + long * 256 + short
    reply[key + k] = string_sub(text, first + 2, last)
    first = last + 1
  end
  reply[at + 4] = string_sub(text, first)
  return key + count
end

-- Consecutive numbers, as text: all digits but the last two are formatted once per hundred.
local LAST_DIGITS = {}

local function series(first, count)
  local texts, last, head = {}, first % 100, nil
  if not LAST_DIGITS[0] then
    for i = 0, 99 do
      LAST_DIGITS[i] = string_format('%02d', i)
    end
  end
  head = string_format('%d', (first - last) / 100)
  for i = 1, count do
    if last == 100 then
      last, head = 0, string_format('%d', (first + i - 1) / 100)
    end
    texts[i] = head .. LAST_DIGITS[last]
    last = last + 1
  end
  return texts
end

-- The answer of a put for new messages.
local function put_reply(ids)
  local reply = {}
  for i = 1, #ids do
    reply[2 * i - 1], reply[2 * i] = ids[i], '0'
  end
  return reply
end

-- Leased messages are read again, while all of them are out; before one is not, see fix_reply().
local function leased_reply(q, token, deadline, settled)
  local reply = {}
  if settled >= 0 then
    reply[1] = tostring(settled)
    for i = 2, settled + 1 do
      reply[i] = 'ACKED'
    end
  end
  local places = places_of(lease_from(token, redis_call('HGET', q.c, 't' .. token)))
  local records, at = fetch(q.c, places), #reply + 4
  reply[at - 3], reply[at - 2], reply[at - 1], reply[at] = token, deadline, '', tostring(#places)
  for i = 1, #places do
    at = tell_plain(places[i], records[i], reply, at)
  end
  return reply
end

-- The stored form of a reply without a shorter form, after `head`. A long one is stored separately,
-- because every call of the consumer would read it. It expires by itself, because a queue may never
-- be called again.
local function short_of(q, consumer, head, reply)
  local packed = cmsgpack.pack(reply)
  if #packed <= APART then
    return head .. 'r' .. packed
  end
  redis_call('SET', name_of(q, 'k:' .. consumer), packed, 'PX', KEPT_REPLY / 1000)
  return head .. 'o'
end

local function reply_of(q, kept, consumer)
  local from = string_find(kept, ' ', string_find(kept, ' ', 1, true) + 1, true) + 1
  local form, rest = string_sub(kept, from, from), string_sub(kept, from + 1)
  if form == 'r' then
    return cmsgpack.unpack(rest)
  elseif form == 'o' then
    local packed = redis_call('GET', name_of(q, 'k:' .. consumer))
    return packed and cmsgpack.unpack(packed)
  elseif form == 'p' then
    local first, count = string_match(rest, '^(%d+) (%d+)$')
    return put_reply(series(to_number(first), to_number(count)))
  end
  local token, deadline, settled = string_match(rest, '^(%d+) (%d+) (-?%d+)$')
  return leased_reply(q, token, deadline, to_number(settled))
end

-- Before a lease ends for a message: the consumer whose reply contains it. A consumer's own next
-- call replaces the reply anyway; q.caller is the present caller.
local function fix_reply(q, token, consumer)
  if consumer == '' or consumer == q.caller then
    return
  end
  local kept = redis_call('HGET', q.c, 'k' .. consumer)
  local head = kept and string_match(kept, '^(%d+ %S+ )l' .. token .. ' ')
  if head then
    redis_call('HSET', q.c, 'k' .. consumer, short_of(q, consumer, head, reply_of(q, kept)))
  end
end

-- The interface to other files: one table, because a library is limited to 200 names.
local forms = {
  COUNT = COUNT, tell_plain = tell_plain, series = series, put_reply = put_reply, short_of = short_of,
  reply_of = reply_of, fix_reply = fix_reply,
}
