-- The way of most calls: a put of plain messages (nothing but exclusive keys and a payload) whose lanes
-- are empty, and acknowledgements of one lease. They are read from the arguments and
-- written without a table for each message. Each function here looks before it writes, and answers nil
-- where anything is not as simple as that: the general way begins anew then.

-- From the messages of a put: payloads, how many keys each has, all keys; and all bytes.
local function plain_arguments(args, at)
  local payloads, counts, keys, n, k, bytes = {}, {}, {}, 0, 0, 0
  local total = #args
  while at < total do
    local payload, count = args[at + 1], SMALL[args[at + 2]]
    if not count or args[at + 3] ~= '0' or args[at + 4] ~= '0' or #payload > APART then
      return nil
    end
    n, at = n + 1, at + 4
    payloads[n], counts[n], bytes = payload, count, bytes + #payload
    for _ = 1, count do
      at, k = at + 1, k + 1
      local key = args[at]
      if not key or key == '' or #key > MAX_KEY_BYTES then
        return nil
      end
      keys[k] = key
    end
  end
  if n == 0 or n > MAX_BATCH or k > MAX_BATCH_KEYS then
    return nil
  end
  return payloads, counts, keys, bytes
end

-- Takes the lanes of these keys for new messages; nothing is written unless all are empty, and all the
-- keys different.
local function take_lanes(q, keys, counts, ids)
  local count = #keys
  if count == 0 then
    return true
  end
  local found = fetch(q.l, keys)
  local lanes, k = {}, 0
  for i = 1, #ids do
    local node = short_node(ids[i])
    for _ = 1, counts[i] do
      k = k + 1
      if found[k] then
        known(hash(q, 'l'), keys, found)
        return false
      end
      lanes[2 * k - 1], lanes[2 * k] = keys[k], node
    end
  end
  if count == 1 then
    redis.call('HSET', q.l, lanes[1], lanes[2])
    return true
  end
  local new = 0
  for first = 1, 2 * count, CHUNK do
    new = new + redis.call('HSET', q.l, unpack(lanes, first, math.min(first + CHUNK - 1, 2 * count)))
  end
  if new < count then
    -- A key was named twice. They were all empty.
    bulk('HDEL', q.l, keys)
    return false
  end
  return true
end

-- Puts such messages; answers their ids.
local function put_quickly(q, payloads, counts, keys, bytes)
  local c, count = q.counters, #payloads
  local first = math.max(c[N.seq] + 1, q.now)
  local ids = series(first, count)
  widen(q)
  if c[N.barriers] > 0 or not take_lanes(q, keys, counts, ids) then
    return nil
  end
  c[N.seq] = first + count - 1
  local records, k, free, ready = {}, 0, {}, {}
  for i = 1, count do
    local id, named = ids[i], counts[i]
    records[2 * i - 1] = id
    if named == 1 then
      k = k + 1
      local key = keys[k]
      records[2 * i] = 'R0\0\1' .. two(#key) .. key .. payloads[i]
      ready[#ready + 1] = id
    elseif named == 0 then
      records[2 * i] = 'R0\0\0' .. payloads[i]
      free[#free + 1] = id
    else
      local parts = { 'R0', two(named) }
      for j = 1, named do
        local key = keys[k + j]
        parts[2 * j + 1], parts[2 * j + 2] = two(#key), key
      end
      k = k + named
      parts[2 * named + 3] = payloads[i]
      records[2 * i] = table.concat(parts)
      ready[#ready + 1] = id
    end
  end
  bulk('HSET', q.p, records)
  bulk('RPUSH', q.fk, ready)
  bulk('RPUSH', q.fu, free)
  c[N.fk], c[N.fu] = c[N.fk] + #ready, c[N.fu] + #free
  c[N.puts], c[N.unsettled], c[N.bytes] = c[N.puts] + count, c[N.unsettled] + count, c[N.bytes] + bytes
  return ids
end

-- The acknowledgements of a call, if they are all of one lease: token, ids, and the ids in one string.
local function plain_acks(args, at)
  local total = #args
  local token, ids, n = args[at + 2], {}, 0
  if (total - at) % 3 > 0 or (total - at) / 3 > MAX_BATCH or not token or #token ~= 16 then
    return nil
  end
  while at < total do
    local id = args[at + 3]
    if args[at + 1] ~= 'ACK' or args[at + 2] ~= token or #id ~= 16 or id < '1' then
      return nil
    end
    n, at = n + 1, at + 3
    ids[n] = id
  end
  local joined = table.concat(ids)
  if token < '1' or string.find(token, '%D') or string.find(joined, '%D') then
    return nil
  end
  return token, ids, joined
end

-- The keys of leased records, in one list; and whose each is. Nil if one is not plain.
local function leased_keys(records)
  local keys, owners, k, bytes = {}, {}, 0, 0
  for i = 1, #records do
    local record = records[i]
    -- 'L': the token is in between.
    local from = string.byte(record) == 76 and 18 or 2
    local flags, high, low, long, short = string.byte(record, from, from + 4)
    if flags ~= 48 then
      return nil
    end
    local at = from + 3
    for j = 1, high * 256 + low do
      if j > 1 then
        long, short = string.byte(record, at, at + 1)
      end
      local last = at + 1 + long * 256 + short
      k = k + 1
      keys[k], owners[k] = string.sub(record, at + 2, last), i
      at = last + 1
    end
    bytes = bytes + #record - at + 1
  end
  return keys, owners, bytes
end

-- Whether these are marked with that token, each named once.
local function marked_once(q, ids, token)
  local seen, marks = {}, fetch(q.lt, ids)
  for i = 1, #ids do
    local id = ids[i]
    if marks[i] ~= token or seen[id] then
      return false
    end
    seen[id] = true
  end
  return true
end

-- Settles messages of one lease, if it stands and nobody waits behind any of them. Answers whether it did.
local function settle_quickly(q, token, ids, joined)
  local c, count = q.counters, #ids
  local text = c[N.barriers] == 0 and redis.call('HGET', q.t, token)
  -- 'p'.
  if not text or string.byte(text, 41) ~= 112 or tonumber(string.sub(text, 17, 32)) <= q.now then
    return false
  end
  local out, consumer = tonumber(string.sub(text, 33, 36)), 41 + string.sub(text, 37, 40)
  -- Where all that it held is out, these are all of it or are asked for.
  local whole = out == count and string.sub(text, consumer + 1) == joined
  if not whole and not marked_once(q, ids, token) then
    return false
  end
  local keys, owners, bytes = leased_keys(fetch(q.p, ids))
  if not keys then
    return false
  end
  local found, owner, node = fetch(q.l, keys), 0, nil
  for k = 1, #keys do
    if owners[k] ~= owner then
      owner = owners[k]
      node = short_node(ids[owner])
    end
    if found[k] ~= node then
      known(hash(q, 'l'), keys, found)
      return false
    end
  end
  fix_reply(q, token, string.sub(text, 42, consumer))
  bulk('HDEL', q.l, keys)
  bulk('HDEL', q.p, ids)
  bulk('HDEL', q.lt, ids)
  if out == count then
    redis.call('HDEL', q.t, token)
    redis.call('ZREM', q.due, 'a' .. token)
  else
    redis.call('HSET', q.t, token,
      string.sub(text, 1, 32) .. string.format('%04d', out - count) .. string.sub(text, 37))
  end
  c[N.leased], c[N.acks] = c[N.leased] - count, c[N.acks] + count
  c[N.unsettled], c[N.bytes] = c[N.unsettled] - count, c[N.bytes] - bytes
  note_ended(q, ids)
  return true
end

-- As take_settlements() tells them.
local function acks_of(token, ids)
  local list = {}
  for i = 1, #ids do
    list[i] = { verb = 'ACK', token = token, id = ids[i], text = false, answer = false, payload = false }
  end
  return list
end

-- What a call settles, read in either way: appends the answers. Answers whether all were acknowledged the
-- quick way, or there was nothing.
local function settle_given(q, list, token, ids, joined, reply)
  if not token or not untouched(q) or not settle_quickly(q, token, ids, joined) then
    list = list or acks_of(token, ids)
    settle_all(q, list, reply)
    return #list == 0
  end
  local at = #reply
  for i = 1, #ids do
    reply[at + i] = 'ACKED'
  end
  return true
end
