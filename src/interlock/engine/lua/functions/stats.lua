-- il1_stats: counts, as pairs of name and number. It writes nothing and so applies nothing that is
-- due: what ran out since the last call still counts as it did.

-- Ready messages of paused keys that have not come up yet and so were not set aside, as far as they are
-- looked for.
local function paused_ready(q)
  local seen, count, left = {}, 0, MAX_LOOKED_AT
  local paused = {}
  if redis_call('HLEN', q.pk) <= MAX_LOOKED_AT then
    paused = redis_call('HKEYS', q.pk)
  else
    local found = redis_call('HSCAN', q.pk, '0', 'COUNT', MAX_LOOKED_AT)[2]
    for i = 1, #found, 2 do
      paused[#paused + 1] = found[i]
    end
  end
  for _, key in ipairs(paused) do
    local places = granted_on(q, key, left)
    left = left - #places
    for _, place in ipairs(places) do
      local m = message_at(q, place)
      if not seen[place] and m.state == 'R' then
        seen[place] = true
        count = count + 1
      end
    end
  end
  return count
end

-- The first place of a list that stands for a message, as far as it is looked for.
local function first_listed(q, half)
  local name, most = q[half.list], math.min(q.counters[half.lists], MAX_LOOKED_AT)
  if q.counters[half.stale] == 0 then
    return redis_call('LINDEX', name, 0)
  end
  for first = 0, most - 1, CHUNK do
    local places = redis_call('LRANGE', name, first, math.min(first + CHUNK, most) - 1)
    for i = 1, #places do
      if redis_call('HEXISTS', q.c, places[i]) == 1 then
        return places[i]
      end
    end
  end
end

-- The id of the message that would be leased next, of those that were not set aside; 0 if there is none.
local function oldest(q)
  local c, place, score = q.counters, nil, nil
  for _, half in ipairs(KINDS.any) do
    local listed = c[half.lists] > 0 and first_listed(q, half)
    local sorted = c[half.sets] > 0 and redis_call('ZRANGE', q[half.set], 0, 0, 'WITHSCORES') or NONE
    for _, one in ipairs({ { listed, 0 }, { sorted[1], to_number(sorted[2] or 0) } }) do
      if one[1] and (not place or one[2] < score or one[2] == score and one[1] < place) then
        place, score = one[1], one[2]
      end
    end
  end
  local m = place and c[N.aliases] > 0 and message_at(q, place)
  return to_number(m and m.id or place or 0)
end

register('stats', function(q, from)
  take_end(from)
  local c = look(q)
  local ready = c[N.halted] == 0 and ready_count(c, 'any') or 0
  if ready > 0 and c[N.paused] > 0 then
    ready = ready - paused_ready(q)
  end
  local now = { ready = ready, oldest = oldest(q) }
  now.waiting = c[N.unsettled] - c[N.delayed] - c[N.leased] - c[N.backing_off] - c[N.held] - ready
  now.paused = c[N.paused] + c[N.halted]
  local reply = {}
  for _, name in ipairs({
    'unsettled', 'bytes', 'delayed', 'waiting', 'ready', 'leased', 'backing_off', 'held', 'dead',
    'puts', 'leases', 'acks', 'retries', 'releases', 'expired', 'revoked', 'buried', 'cancelled',
    'skipped', 'requeued', 'deduplicated', 'lanes', 'paused', 'sealed', 'results',
    'result_bytes', 'oldest', 'dropped', 'dead_expired',
  }) do
    reply[#reply + 1] = name
    reply[#reply + 1] = digits(now[name] or c[N[name]])
  end
  return reply
end)
