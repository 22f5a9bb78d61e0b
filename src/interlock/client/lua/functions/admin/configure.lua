-- il1_configure: [CHANGE | REPLACE] [name value]...
-- The first declaration counts. A later one is compared with it in what it names, and changes nothing; with
-- CHANGE what it names is changed, with REPLACE all. Answers pairs of name and value, all that is in force.

local function take_declaration(from)
  local mode = from.args[1]
  if mode == 'CHANGE' or mode == 'REPLACE' then
    from.at = 1
  else
    mode = nil
  end
  local given, i = {}, 0
  while more(from) do
    i = i + 1
    local name = take.argument(from, 'options[%d]', i)
    local option = OPTION[name]
    if not option then
      bad(from, 'options[%d]', i, 'is not CHANGE, REPLACE, ' .. DECLARED.queue.told)
    elseif given[name] ~= nil then
      bad(from, 'options[%d]', i, 'is ' .. name .. ', named twice')
    end
    given[name] = take_option(from, option, name)
  end
  if given.DURABILITY and given.DURABILITY ~= 'server' then
    refuse('NOTSUPPORTED', "%s: DURABILITY is '%s'; here it is the server's setting, server",
      from.called, given.DURABILITY)
  end
  return given, mode
end

local function as_text(value)
  return type(value) == 'number' and digits(value) or value
end

-- By the new limits, other names of a message may come first.
local function release_keepers(q)
  for _, m in ipairs(slots.keepers_on(q)) do
    slots.leave(q, m)
    make_ready(q, m)
  end
end

register('configure', function(q, from)
  local declares = more(from)
  local given, mode = take_declaration(from)
  local c = begin(q)
  local now = options_of(q)
  local compares = c[N.declared] > 0 and not mode
  if declares and compares then
    for _, option in ipairs(DECLARED.queue) do
      local value = given[option.name]
      if value ~= nil and value ~= now[option.name] then
        refuse_now(q, 'OPTIONSMISMATCH', "%s: %s is '%s'; the queue was declared with '%s'",
          from.called, option.name, as_text(value), as_text(now[option.name]))
      end
    end
  elseif declares then
    for _, option in ipairs(DECLARED.queue) do
      local name = option.name
      if given[name] == nil then
        given[name] = mode == 'CHANGE' and now[name] or option.default
      end
    end
    local limits_change, behind_before = given.LIMITS ~= now.LIMITS, now.BEHIND
    if q.slots and limits_change then
      release_keepers(q)
    end
    now = given
    c[N.declared] = 1
    redis_call('SET', q.o, cmsgpack.pack(now))
    q.options = now
    if c[N.timed] > 0 and limits_change then
      rates.configure(q)
    end
    if q.slots and limits_change then
      slots.configure(q)
    end
    if c[N.dead] > 0 then
      c[N.dead_due] = 0
    end
    if given.BEHIND ~= behind_before then
      behind.configure(q, given.BEHIND)
    end
  end
  commit(q)
  local reply = {}
  for _, option in ipairs(DECLARED.queue) do
    reply[#reply + 1] = option.name
    reply[#reply + 1] = as_text(now[option.name])
  end
  return reply
end)
