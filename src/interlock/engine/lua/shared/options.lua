-- The options of a queue, as il1_configure declares them; in the order in which they are told.

local THEN = { dead = true, hold = true, told = 'dead or hold' }

local DURABILITY = {
  always = true, everysec = true, none = true, server = true,
  told = 'always, everysec, none or server',
}

local OPTIONS = {
  { name = 'MAXSIZE', least = 0, most = MAX_COUNT, default = 0 },
  { name = 'MAXBYTES', least = 0, most = MAX_SPAN, default = 0 },
  { name = 'MAXDEAD', least = 0, most = MAX_COUNT, default = 10000 },
  { name = 'WINDOW', least = 0, most = MAX_SPAN, default = 300000000 },
  { name = 'ATTEMPTS', least = 0, most = MAX_COUNT, default = 5 },
  { name = 'FIRST', least = 0, most = MAX_SPAN, default = 1000000 },
  { name = 'FACTOR', least = 1000, most = MAX_COUNT, default = 2000 },
  { name = 'LONGEST', least = 0, most = MAX_SPAN, default = 60000000 },
  { name = 'JITTER', least = 0, most = 1, default = 1 },
  { name = 'THEN', words = THEN, default = 'dead' },
  { name = 'RESULTS', least = 0, most = MAX_SPAN, default = 67108864 },
  { name = 'DURABILITY', words = DURABILITY, default = 'server' },
}
local OPTION = {}
for i = 1, #OPTIONS do
  OPTION[OPTIONS[i].name] = OPTIONS[i]
end

-- What a message may have of its own, instead of the queue's.
local POLICY = { 'ATTEMPTS', 'FIRST', 'FACTOR', 'LONGEST', 'JITTER', 'THEN' }

local function take_option(from, option, what, index)
  if option.words then
    return take_word(from, option.words, what, index)
  end
  return take_whole(from, option.least, option.most, what, index)
end

local function default_options()
  local options = {}
  for _, option in ipairs(OPTIONS) do
    options[option.name] = option.default
  end
  return options
end

local function options_of(q)
  if q.counters[N.declared] == 0 then
    return default_options()
  end
  local options = cmsgpack.unpack(redis_call('GET', q.o))
  for _, option in ipairs(OPTIONS) do
    if options[option.name] == nil then
      options[option.name] = option.default
    end
  end
  return options
end

-- The queue's option, or the message's own.
local function option(q, name, m)
  local own = m and m.extras and m.extras[name]
  if own ~= nil then
    return own
  end
  if not q.options then
    q.options = q.counters[N.declared] > 0 and options_of(q) or NONE
  end
  local value = q.options[name]
  return value == nil and OPTION[name].default or value
end
