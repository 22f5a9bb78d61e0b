-- il1_purge: what
-- pending: cancels messages that are not leased; dead: drops dead letters. Answers how many, at most
-- MAX_PURGED, fewer where those cancelled have MAX_BATCH_KEYS keys together: call again until it is 0.

local PURGED = { pending = true, dead = true, told = 'pending or dead' }

local function purge_pending(q)
  local c, cursor, count, keys = q.counters, '0', 0, 0
  -- Messages due in this call have their places only from here on.
  flush_messages(q)
  write_out(q)
  local before = q.watched and #q.events
  repeat
    if c[N.unsettled] <= c[N.leased] then
      break
    end
    local found = redis_call('HSCAN', q.c, cursor, 'COUNT', READ_AT_ONCE)
    cursor = found[1]
    for i = 1, #found[2], 2 do
      local place = found[2][i]
      local m = count < MAX_PURGED and keys < MAX_BATCH_KEYS and is_place(place) and message_at(q, place)
      if m and not m.gone and STATES[m.state] ~= 'leased' then
        outcome.cancel(q, m)
        count, keys = count + 1, keys + #m.exclusive + #m.shared
      end
    end
  until cursor == '0' or count == MAX_PURGED or keys >= MAX_BATCH_KEYS
  if q.watched then
    events.sort(q, before)
  end
  return count
end

register('purge', function(q, from)
  local what = take.word(from, PURGED, 'what')
  take_end(from)
  begin(q)
  local count
  if what == 'pending' then
    count = purge_pending(q)
    behind.move(q)
  else
    local ids = redis_call('ZRANGE', q.xo, 0, MAX_PURGED - 1)
    count = letters.drop(q, ids)
  end
  commit(q)
  return { tostring(count) }
end)
