-- The path of most calls: a put of plain messages (only exclusive keys and a payload, and a limit name or a group) whose lanes
-- are empty, and acknowledgements of one lease. They are read from the arguments and written
-- without a table for each message. Each function here checks before it writes, and answers nil in
-- any other case: the general path then begins anew.

local note_ended = results.note_ended
local series, fix_reply = forms.series, forms.fix_reply

-- Writes what the call has to write so far; answers how many fields are new.
local function put_at_once(q)
  local new, count = 0, q.sets
  q.sets = 0
  for first = 1, count, CHUNK do
    local last = first + CHUNK - 1
    if last > count then
      last = count
    end
    new = new + redis_call('HSET', q.c, table_unpack(SETS, first, last))
  end
  return new
end

-- From the messages of a put: payloads, how many keys each has, all keys; these lists stay.
local PAYLOADS = {}
local COUNTS = {}
local KEYS = {}
-- The limit name of each that has one, and the group; false where none has.
local LIMITED_BY = false
local GROUPED_BY = false
local FIELDS = {}
-- Numbers of entries that the last call put into these lists: a large call's entries are removed by
-- the next one.
local LATELY = { put = 0, lanes = 0 }

-- Reads them. Answers how many messages and keys they are, and all bytes.
local function plain_arguments(args, at)
  if LATELY.put > STAYS then
    PAYLOADS, KEYS, FIELDS = {}, {}, {}
  end
  local payloads, counts, keys, n, k, bytes = PAYLOADS, COUNTS, KEYS, 0, 0, 0
  LIMITED_BY, GROUPED_BY = false, false
  local total = #args
  while at < total do
    local payload, count, options = args[at + 1], SMALL[args[at + 2]], args[at + 4]
    if not count or args[at + 3] ~= '0' or options ~= '0' and options ~= '1' or #payload > APART
      or n == MAX_BATCH or k > MAX_BATCH_KEYS then
      LATELY.put = n + k
      return nil
    end
    n, at = n + 1, at + 4
    payloads[n], counts[n], bytes = payload, count, bytes + #payload
    for _ = 1, count do
      at, k = at + 1, k + 1
      local key = args[at]
      if not key or key == '' or #key > MAX_KEY_BYTES then
        LATELY.put = n + k
        return nil
      end
      keys[k] = key
    end
    if options ~= '0' then
      local option, name = args[at + 1], args[at + 2]
      if option ~= 'LIMIT' and option ~= 'GROUP' or not name or name == '' or #name > MAX_TEXT
        or string_find(name, '\31', 1, true) then
        LATELY.put = n + k
        return nil
      elseif option == 'LIMIT' then
        LIMITED_BY = LIMITED_BY or {}
        LIMITED_BY[n] = name
      else
        GROUPED_BY = GROUPED_BY or { count = 0 }
        GROUPED_BY[n], GROUPED_BY.count = name, GROUPED_BY.count + 1
      end
      at = at + 2
    end
  end
  LATELY.put = n + k
  if n == 0 or k > MAX_BATCH_KEYS then
    return nil
  end
  return n, k, bytes
end

-- The fields of c to read ahead, from the third on (see kept_reply()): the lanes of these many keys, then the groups of the
-- messages, each once. Answers which is the last, too.
local function fields_ahead(keys, messages)
  local fields, last = FIELDS, keys + 2
  for k = 1, keys do
    local key = KEYS[k]
    fields[k + 2] = two(#key) .. key
  end
  if GROUPED_BY then
    local seen = {}
    for i = 1, messages do
      local group = GROUPED_BY[i]
      if group and not seen[group] then
        seen[group], last = true, last + 1
        fields[last] = 'g\0\0' .. group
      end
    end
  end
  return fields, last
end

-- The content of a key's lane with a single such message, for messages with consecutive places.
local BYTE = {}
local function nodes(first, count)
  if not BYTE[0] then
    for i = 0, 255 do
      BYTE[i] = string.char(i)
    end
  end
  if count == 1 then
    return { struct_pack('>I6', first) }
  end
  local texts, last = {}, first % 256
  local head = string_sub(struct_pack('>I6', first), 1, 5)
  for i = 1, count do
    if last == 256 then
      last, head = 0, string_sub(struct_pack('>I6', first + i - 1), 1, 5)
    end
    texts[i] = head .. BYTE[last]
    last = last + 1
  end
  return texts
end

-- Readies new messages, of which some have keys, or a group. Answers how many are in no group, with keys and without.
local function push_both(q, ids, grouped_by)
  local ready, free, grouped, groups, keys = {}, {}, {}, {}, {}
  for i = 1, #ids do
    if grouped_by and grouped_by[i] then
      local n = #grouped + 1
      grouped[n], groups[n], keys[n] = ids[i], grouped_by[i], COUNTS[i]
    else
      local list = COUNTS[i] > 0 and ready or free
      list[#list + 1] = ids[i]
    end
  end
  bulk('RPUSH', q.fk, ready)
  bulk('RPUSH', q.fu, free)
  if #grouped > 0 then
    turns.put_plainly(q, grouped, groups, false, keys)
  end
  return #ready, #free
end

-- Puts such messages, if all their lanes are empty and their keys different; answers their ids.
local function put_quickly(q, count, named, bytes)
  local c, found = q.counters, q.kept
  local payloads, counts, lanes, sets, n = PAYLOADS, COUNTS, FIELDS, SETS, q.sets
  local limited_by, limited, grouped_by = LIMITED_BY, 0, GROUPED_BY
  if c[N.rare] > 0 and (c[N.barriers] > 0 or c[N.behind] > 0 and behind.has_shut(c)) then
    return nil
  end
  for k = 3, named + 2 do
    if found[k] then
      known(hash(q, 'l'), KEYS, found, 2, named)
      return nil
    end
  end
  local first = c[N.seq] + 1
  if first < q.now then
    first = q.now
  end
  local ids = count == 1 and first == q.now and { q.stamp } or series(first, count)
  local places = nodes(first, count)
  local k, free = 0, 0
  for i = 1, count do
    local id, some, head = ids[i], counts[i], 'R0'
    sets[n + 1] = id
    if limited_by and limited_by[i] then
      head, limited = 'R@' .. two(#limited_by[i]) .. limited_by[i], limited + 1
    elseif grouped_by and grouped_by[i] then
      head = 'Rp' .. two(#grouped_by[i]) .. grouped_by[i]
    end
    if some == 1 then
      k = k + 1
      local lane = lanes[k + 2]
      sets[n + 2], sets[n + 3], sets[n + 4] = head .. '\0\1' .. lane .. payloads[i], lane, places[i]
      n = n + 4
    elseif some == 0 then
      sets[n + 2] = head .. '\0\0' .. payloads[i]
      n = n + 2
      free = free + 1
    else
      local node, last = places[i], k + some
      sets[n + 2] = head .. two(some) .. table_concat(lanes, '', k + 3, last + 2) .. payloads[i]
      n = n + 2
      for j = k + 3, last + 2 do
        sets[n + 1], sets[n + 2] = lanes[j], node
        n = n + 2
      end
      k = last
    end
  end
  q.sets = n
  if named > 1 and put_at_once(q) < named + count then
    -- A key was named twice. They were all empty.
    bulk('HDEL', q.c, ids)
    bulk('HDEL', q.c, { table_unpack(lanes, 3, named + 2) })
    return nil
  end
  c[N.seq] = first + count - 1
  local with_keys = count - free
  if grouped_by and grouped_by.count == count and (free == 0 or free == count) then
    turns.put_plainly(q, ids, grouped_by, free == 0 and 0 or 1, COUNTS, named + 2)
    with_keys, free = 0, 0
  elseif not grouped_by and (free == 0 or free == count) then
    bulk('RPUSH', free == 0 and q.fk or q.fu, ids)
  else
    with_keys, free = push_both(q, ids, grouped_by)
  end
  if limited > 0 then
    c[N.gated] = c[N.gated] + limited
  end
  c[N.fk], c[N.fu], c[N.lanes] = c[N.fk] + with_keys, c[N.fu] + free, c[N.lanes] + named
  c[N.puts], c[N.unsettled], c[N.bytes] = c[N.puts] + count, c[N.unsettled] + count, c[N.bytes] + bytes
  if q.watched then
    k = 0
    for i = 1, count do
      events.plainly(q, 'put', ids[i], '', '', { table_unpack(KEYS, k + 1, k + counts[i]) })
      k = k + counts[i]
    end
  end
  return ids
end

-- The fields to read ahead of acknowledgements (see kept_reply()): from the third on their lease,
-- and the ids. The list is reused, as are their lanes.
local ASKED = {}
local LANES = {}

-- The acknowledgements of a call, if they are all of one lease: its token, their number, and their
-- ids in one string.
local function plain_acks(args, at)
  local total = #args
  local token, fields, n = args[at + 2], ASKED, 3
  if (total - at) % 3 > 0 or (total - at) / 3 > MAX_BATCH or not token or #token ~= 16 then
    return nil
  end
  while at < total do
    local id = args[at + 3]
    if args[at + 1] ~= 'ACK' or args[at + 2] ~= token or #id ~= 16 or id < '1' then
      return nil
    end
    n, at = n + 1, at + 3
    fields[n] = id
  end
  local joined = n == 4 and fields[4] or table_concat(fields, '', 4, n)
  if token < '1' or not string_find(token, '^%d+$') or not string_find(joined, '^%d+$') then
    return nil
  end
  fields[3] = 't' .. token
  return token, n - 3, joined
end

-- Lists the lanes of leased records, as they are named in c. Answers how many they are, how many bytes the
-- payloads have, and how many limit names and groups; nil if one is not plain. The records begin behind `after`.
local function lanes_of(records, after, count)
  if LATELY.lanes > STAYS then
    LANES = {}
  end
  local lanes, n, bytes, limited, grouped = LANES, 0, 0, 0, 0
  for i = after + 1, after + count do
    local record = records[i]
    if not record then
      return nil
    end
    -- 'L': the token is in between.
    local from = string_byte(record) == 76 and 18 or 2
    local flags, high, low, long, short = string_byte(record, from, from + 4)
    if flags ~= 48 then
      if flags ~= LIMITED_FLAG and flags ~= GROUPED_FLAG then
        return nil
      end
      local last = from + 2 + high * 256 + low
      local name = string_sub(record, from + 3, last)
      from = last
      high, low, long, short = string_byte(record, from + 1, from + 4)
      if flags == LIMITED_FLAG then
        limited = limited + 1
        slots.named[limited] = name
      else
        grouped = grouped + 1
        turns.named[grouped], turns.halves[grouped] = name, high + low > 0 and 0 or 1
      end
    end
    local at = from + 3
    for j = 1, high * 256 + low do
      if j > 1 then
        long, short = string_byte(record, at, at + 1)
      end
      local last = at + 1 + long * 256 + short
      n = n + 1
      lanes[n] = string_sub(record, at, last)
      at = last + 1
    end
    bytes = bytes + #record - at + 1
  end
  LATELY.lanes = n
  return n, bytes, limited, grouped
end

-- Whether these are marked with that token, each named once.
local function marked_once(q, count, token)
  local seen, asked = {}, {}
  for i = 1, count do
    asked[i] = 'm' .. ASKED[i + 3]
  end
  local marks = fetch(q.c, asked)
  for i = 1, #asked do
    local field = asked[i]
    if marks[i] ~= token or seen[field] then
      return false
    end
    seen[field] = true
  end
  return true
end

-- Settles messages of one lease, if it is valid and nobody waits behind any of them. Answers
-- whether it did.
local function settle_quickly(q, token, count, joined)
  local c, ids, ahead = q.counters, ASKED, q.kept
  local text = (c[N.rare] == 0 or c[N.barriers] == 0) and ahead[3]
  -- 'p'. While nothing is due, no lease is over.
  if not text or string_byte(text, 41) ~= 112
    or c[N.due] <= q.now and to_number(string_sub(text, 17, 32)) <= q.now then
    return false
  end
  local caller, out, consumer = q.caller, count, nil
  -- Where all that it held is out, these are all of it or are asked for.
  if caller and string_sub(text, 33) == four(count) .. four(#caller) .. 'p' .. caller .. joined then
    consumer = caller
  else
    local from = 41 + string_sub(text, 37, 40)
    out, consumer = to_number(string_sub(text, 33, 36)), string_sub(text, 42, from)
    if (out ~= count or string_sub(text, from + 1) ~= joined) and not marked_once(q, count, token) then
      return false
    end
  end
  local named, bytes, limited, grouped = lanes_of(ahead, 3, count)
  if not named then
    return false
  end
  if c[N.crowded] > 0 then
    local found = fetch(q.c, LANES, named)
    for k = 1, named do
      -- One exclusive message alone: this one.
      if not found[k] or #found[k] > 6 then
        return false
      end
    end
  end
  if limited > 0 and (c[N.rare] > 0 and c[N.grouped] > 0 or not slots.free_plainly(q, limited)) then
    return false
  end
  if grouped > 0 then
    turns.settle_plainly(q, grouped)
  end
  fix_reply(q, token, consumer)
  local dels, n = DELS, q.dels
  for k = 1, named do
    dels[n + k] = LANES[k]
  end
  n = n + named
  for i = 4, count + 3 do
    local id = ids[i]
    dels[n + 1], dels[n + 2] = id, 'm' .. id
    n = n + 2
  end
  q.dels = n
  if out == count then
    del_field(q, 't' .. token)
    redis_call('ZREM', q.due, 'a' .. token)
  else
    set_field(q, 't' .. token, string_sub(text, 1, 32) .. four(out - count) .. string_sub(text, 37))
  end
  c[N.leased], c[N.acks], c[N.lanes] = c[N.leased] - count, c[N.acks] + count, c[N.lanes] - named
  c[N.unsettled], c[N.bytes] = c[N.unsettled] - count, c[N.bytes] - bytes
  if q.watched then
    for i = 4, count + 3 do
      local record = ahead[i]
      events.plainly(q, 'ack', ids[i], token, '', (plain_keys(record, string_byte(record) == 76 and 18 or 2)))
    end
  end
  note_ended(q, ids)
  return true
end

-- In the form of take_settlements().
local function acks_of(token, count)
  local list = {}
  for i = 1, count do
    list[i] = {
      verb = 'ACK', token = token, id = ASKED[i + 3], text = false, answer = false, payload = false,
    }
  end
  return list
end

-- The settlements of a call, read on either path: appends the answers. Answers whether all were
-- acknowledged on the quick path, or there was nothing.
local function settle_given(q, list, token, count, joined, reply)
  if not token or not untouched(q) or not settle_quickly(q, token, count, joined) then
    list = list or acks_of(token, count)
    settle_all(q, list, reply)
    return #list == 0
  end
  local at = #reply
  for i = 1, count do
    reply[at + i] = 'ACKED'
  end
  return true
end

-- The interface to other files: one table, because a library is limited to 200 names.
local quick = {
  plain_arguments = plain_arguments, fields_ahead = fields_ahead, put_quickly = put_quickly, ASKED = ASKED,
  plain_acks = plain_acks, settle_given = settle_given,
}
