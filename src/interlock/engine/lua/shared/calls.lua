-- The beginning and the end of a call that writes.

-- Reads the counters; applies nothing. Reading functions need no more.
local function look(q)
  if not q.hashes then
    q.hashes, q.used, q.messages = {}, {}, {}
    q.changed, q.granted, q.written, q.gone = {}, {}, {}, {}
    q.pushed = { fk = {}, fu = {}, rk = {}, ru = {} }
  end
  q.now = now_of(q)
  return load_counters(q)
end

local function begin(q)
  local c = look(q)
  q.steps, q.readied = MAX_READIED, MAX_READIED
  apply_due(q)
  return c
end

local function commit(q)
  if not untouched(q) then
    flush_ready(q)
    flush_messages(q)
    for _, h in ipairs(q.used) do
      flush(h)
    end
  end
  narrow(q)
  wake_all(q)
  save_counters(q)
end

-- For the state that the queue is in: what was due has been applied all the same.
local function refuse_now(q, code, text, ...)
  commit(q)
  refuse(code, text, ...)
end
