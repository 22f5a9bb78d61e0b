-- The beginning and the end of a call that writes.

local write_classes = lanes.write_classes
local wake_all = waiters.wake_all

-- Reads the counters; applies nothing. Reading functions need only this.
local function look(q)
  if not q.hashes then
    q.hashes, q.used, q.messages = {}, {}, {}
    q.changed, q.granted, q.written, q.gone = {}, {}, {}, {}
    q.pushed = { fk = {}, fu = {}, rk = {}, ru = {} }
  end
  q.sets, q.dels, q.watched = 0, 0, false
  -- A call that looked for its kept reply has read them already.
  if not q.kept then
    q.now = (now_of(q))
  end
  local c = load_counters(q)
  if c[N.rare] > 0 and c[N.grouped] > 0 then
    q.turns = turns.state()
  end
  if c[N.gated] > 0 then
    q.slots, q.lines, q.moved = slots.spare or {}, {}, { keyed = {}, unkeyed = {} }
    slots.spare, q.timed = nil, c[N.timed]
  end
  return c
end

local function begin(q)
  local c = look(q)
  if c[N.rare] > 0 and c[N.event_last] > 0 then
    q.watched, q.events = c[N.watched] > q.now, {}
    events.end_watch(q)
  end
  q.steps, q.readied = MAX_READIED, MAX_READIED
  if q.unindexed then
    behind.index_held(q)
  end
  apply_due(q)
  return c
end

-- The queue was dropped, and is made again: the kept replies belong to it again.
local function revive(q)
  local c, kept = q.counters, redis_call('HGETALL', q.series)
  for i = 1, #kept, 2 do
    local field, text = kept[i], kept[i + 1]
    if field ~= 'c' then
      local stamp = string_match(text, '^%d+ (%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)')
      set_field(q, field, text)
      redis_call('ZADD', q.ko, 'NX', stamp, string_sub(field, 2))
      c[N.kept_due] = math.min(c[N.kept_due], to_number(stamp) + KEPT_REPLY)
    end
  end
end

-- `field` and `value` are one more to write.
local function commit(q, field, value)
  if q.slots then
    slots.flush(q)
  end
  if q.turns then
    turns.flush(q)
  end
  if not untouched(q) then
    flush_ready(q)
    flush_messages(q)
    for _, h in ipairs(q.used) do
      flush(q, h)
    end
    if q.classes then
      write_classes(q)
    end
  end
  wake_all(q)
  if q.watched and #q.events > 0 then
    events.flush(q)
  end
  if q.revived then
    revive(q)
  end
  save_counters(q)
  if field then
    set_field(q, field, value)
  end
  write_out(q)
end

-- For an error of the queue's state: what was due has been applied all the same.
local function refuse_now(q, code, text, ...)
  commit(q)
  refuse(code, text, ...)
end
