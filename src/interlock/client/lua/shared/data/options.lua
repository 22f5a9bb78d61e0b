-- The options of a queue, as il1_configure declares them, and those that a message has of its own.

local take_whole, take_word = take.whole, take.word

local OPTION = {}
for i = 1, #DECLARED.queue do
  OPTION[DECLARED.queue[i].name] = DECLARED.queue[i]
end

local function take_option(from, option, what, index)
  if option.words then
    return take_word(from, option.words, what, index)
  elseif option.list then
    return limit_names.take_limits(from, option)
  end
  return take_whole(from, option.least, option.most, what, index)
end

local function default_options()
  local options = {}
  for _, option in ipairs(DECLARED.queue) do
    options[option.name] = option.default
  end
  return options
end

local function options_of(q)
  if q.counters[N.declared] == 0 then
    return default_options()
  end
  local text = redis_call('GET', q.o)
  if text ~= q.options_text then
    local options = cmsgpack.unpack(text)
    for _, option in ipairs(DECLARED.queue) do
      if options[option.name] == nil then
        options[option.name] = option.default
      end
    end
    q.options_text, q.options_read = text, options
  end
  return q.options_read
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
