-- il1_requeue: id [payload [exclusive shared [key...] [key...] [limit group run]]]
-- Puts a dead letter again, as a new message (clause 10), or one like it with another payload, other keys
-- and other names. Answers its new id; nothing if there is no such dead letter. No allow-oom: it is a put.

local function take_new_keys(from)
  local exclusive = take.whole(from, 0, MAX_KEYS, 'exclusive')
  local shared = take.whole(from, 0, MAX_KEYS, 'shared')
  if exclusive + shared > MAX_KEYS then
    bad(from, 'keys', nil, string_format('are %d; at most %d', exclusive + shared, MAX_KEYS))
  end
  local seen, keys = {}, { exclusive = {}, shared = {} }
  take.keys(from, exclusive, 'exclusive', nil, seen, keys.exclusive)
  take.keys(from, shared, 'shared', nil, seen, keys.shared)
  return keys
end

-- An empty text removes the name.
local function take_name(from, most, name, check)
  local text = take.text(from, most, name)
  return text ~= '' and check(from, text, name)
end

local function take_new_names(from)
  return {
    LIMIT = take_name(from, MAX_TEXT, 'LIMIT', limit_names.sort) or nil,
    GROUP = take_name(from, MAX_TEXT, 'GROUP', limit_names.check_group) or nil,
    RUN = take_name(from, MAX_RUN, 'RUN', limit_names.check_run) or nil,
  }
end

register('requeue', function(q, from)
  local id = take.number(from, 'id')
  local edited = more(from) and take.text(from, MAX_PAYLOAD, 'payload')
  local keys = more(from) and take_new_keys(from)
  local names = more(from) and take_new_names(from)
  take_end(from)
  local c = begin(q)
  local text = redis_call('HGET', q.x, id)
  if not text then
    commit(q)
    return {}
  end
  local dead = cmsgpack.unpack(text)
  if keys then
    if dead.barrier and #keys.exclusive + #keys.shared > 0 then
      refuse_now(q, 'BADARG', '%s: id %s is a barrier, which takes no keys', from.called, id)
    end
    dead.exclusive, dead.shared = keys.exclusive, keys.shared
  end
  if names then
    dead.extras.LIMIT, dead.extras.GROUP, dead.extras.RUN = names.LIMIT, names.GROUP, names.RUN
  end
  refuse_sealed(q, from)
  local payload = edited or dead.outside and redis_call('HGET', q.y, id) or dead.payload
  local wrong = too_large(q, 1, #payload)
  if wrong then
    refuse_now(q, 'TOOBIG', '%s: %s', from.called, wrong)
  end
  local m = new_message(payload, dead.exclusive)
  m.shared, m.barrier = dead.shared, dead.barrier
  m.limit, m.group = dead.extras.LIMIT or false, dead.extras.GROUP or false
  dead.extras.LIMIT, dead.extras.GROUP = nil, nil
  m.extras = next(dead.extras) ~= nil and dead.extras or nil
  wrong = behind.too_many(q, { m })
  if wrong then
    refuse_now(q, 'STUCK', '%s: %s', from.called, wrong)
  end
  local waits = c[N.room_until] > q.now
  wrong = no_room(q, 1, #payload) or waits and room.is_kept(q) and room.KEPT
  if wrong then
    refuse_now(q, 'FULL', '%s: %s', from.called, wrong)
  end
  if waits then
    room.took(q)
  end
  letters.drop(q, { id })
  c[N.requeued] = c[N.requeued] + 1
  local reply = { enter(q, m) }
  commit(q)
  return reply
end)
