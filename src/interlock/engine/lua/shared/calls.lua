-- The beginning and the end of a call that writes.

-- Reads the counters; applies nothing. Reading functions need no more.
local function look(q)
  if not q.hashes then
    q.hashes, q.used, q.messages = {}, {}, {}
    q.changed, q.granted, q.written, q.gone = {}, {}, {}, {}
    q.pushed = { fk = {}, fu = {}, rk = {}, ru = {} }
  end
  q.sets, q.dels = 0, 0
  -- A call that looked for its kept reply has asked already.
  if not q.kept then
    q.now = (now_of(q))
  end
  return load_counters(q)
end

local function begin(q)
  local c = look(q)
  q.steps, q.readied = MAX_READIED, MAX_READIED
  apply_due(q)
  return c
end

-- `field` and `value` are one more to write.
local function commit(q, field, value)
  if not untouched(q) then
    flush_ready(q)
    flush_messages(q)
    for _, h in ipairs(q.used) do
      flush(q, h)
    end
  end
  wake_all(q)
  save_counters(q)
  if field then
    set_field(q, field, value)
  end
  write_out(q)
end

-- For the state that the queue is in: what was due has been applied all the same.
local function refuse_now(q, code, text, ...)
  commit(q)
  refuse(code, text, ...)
end
