-- Coalescing names (clause 29): the field n NAME of c has the id of the newest message that was put with the name, while
-- it is unsettled. The name is the first of its exclusive keys. A put with the name replaces the payload of that one,
-- unless it is leased.

-- A table of functions: a library is limited to 200 names.
local coalescing = {}

-- A message with a name enters.
function coalescing.enter(q, m)
  local c = q.counters
  set(hash(q, 'cn'), m.coalesce, m.id)
  c[N.coalescing] = c[N.coalescing] + 1
  q.eased = true
  if m.within then
    m.extras.LATEST = q.now + m.within
  end
end

-- A message with a name is settled. An older one of the name does not become the newest again.
function coalescing.settled(q, m)
  local c, name = q.counters, m.exclusive[1]
  if get(hash(q, 'cn'), name) == m.id then
    set(hash(q, 'cn'), name, false)
  end
  c[N.coalescing] = c[N.coalescing] - 1
end

-- Reads the data for settling these.
function coalescing.look_at(q, messages)
  local names = {}
  for i = 1, #messages do
    local m = messages[i]
    if m.extras and m.extras.COALESCE then
      names[#names + 1] = m.exclusive[1]
    end
  end
  prefetch(hash(q, 'cn'), names)
end

-- The messages whose payload puts with these names replace, by name.
local function replaceable(q, names)
  local found, ids, targets = hash(q, 'cn'), {}, {}
  if q.counters[N.coalescing] == 0 then
    return targets
  end
  prefetch(found, names)
  for i = 1, #names do
    ids[#ids + 1] = found.values[names[i]] or nil
  end
  for _, m in ipairs(find_all(q, ids)) do
    if STATES[m.state] ~= 'leased' then
      targets[m.exclusive[1]] = m
    end
  end
  return targets
end

-- Names the first thing that keeps a put from replacing the payload of a message; nil if nothing does.
local function difference(m, put)
  if not lanes.same_keys(m.exclusive, put.exclusive) or not lanes.same_keys(m.shared, put.shared) then
    return 'set of keys'
  elseif priority_of(m) ~= priority_of(put) then
    return 'priority'
  elseif m.limit ~= put.limit then
    return 'limit'
  elseif m.group ~= put.group then
    return 'group'
  end
end

-- Finds for each message of a put the one whose payload it replaces, which may be an earlier one of the call: `onto`.
-- Answers how many bytes more than those of the new messages have to be free, and how many more all the last payloads
-- have; and why one of them must not replace any, if that is so.
function coalescing.plan(q, list)
  local names, first, last, more_bytes, all_bytes = {}, {}, {}, 0, 0
  for i = 1, #list do
    names[#names + 1] = list[i].coalesce
  end
  local targets = replaceable(q, names)
  for i = 1, #list do
    local m = list[i]
    local name = m.coalesce
    local target = name and targets[name]
    local wrong = target and difference(target, m)
    if wrong then
      return 0, 0, string_format('messages[%d] has another %s than %s, whose payload it would replace',
        i, wrong, target.id and 'message ' .. target.id or 'messages[' .. first[name] .. ']')
    elseif target then
      m.onto = target
    elseif name then
      targets[name], first[name] = m, i
    end
    if name then
      last[name] = #m.payload
    end
  end
  for name, bytes in pairs(last) do
    local target = targets[name]
    if target.id then
      more_bytes, all_bytes = more_bytes + math.max(0, bytes - size_of(target)), all_bytes + bytes
    else
      more_bytes, all_bytes = more_bytes + bytes - #target.payload, all_bytes + bytes - #target.payload
    end
  end
  return more_bytes, all_bytes
end
