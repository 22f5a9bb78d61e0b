-- The names of limits (clauses 26, 27): as a message carries them, and as a queue declares for each a number or a rate,
-- N/PER:BURST. The byte 31 is between them. A declared name that ends in '*' is a prefix. The weights of groups (28) are
-- declared in the same way.

local MANY_NAMES = 10000

-- A table of functions: a library is limited to 200 names.
local limit_names = {}

-- Bytes in order, whatever the server's locale says of texts.
function limit_names.below(a, b)
  for i = 1, math.min(#a, #b) do
    local one, other = string_byte(a, i), string_byte(b, i)
    if one ~= other then
      return one < other
    end
  end
  return #a < #b
end

-- The parts of a text with the byte 31 between them.
function limit_names.parts_of(text)
  if not string_find(text, '\31', 1, true) then
    return { text }
  end
  local parts = {}
  for part in string.gmatch(text .. '\31', '([^\31]*)\31') do
    parts[#parts + 1] = part
  end
  return parts
end

-- A declared rate: the time from one grant to the next, µs, and the number of grants at once; nil if it is not one.
local function rate_of(text)
  local count, per, burst = string_match(text, '^(%d+)/(%d+):(%d+)$')
  if not count then
    return nil
  end
  count, per, burst = to_number(count), to_number(per), to_number(burst)
  local is_valid = count >= 1 and count <= MAX_COUNT and per >= count and per <= MAX_SPAN
    and burst >= 1 and burst <= MAX_COUNT and math.ceil(per / count) * burst <= MAX_SPAN
  if not is_valid then
    return nil
  end
  local interval = math.ceil(per / count)
  return {
    interval = interval, burst = burst, span = (burst - 1) * interval,
    text = digits(count) .. '/' .. digits(per) .. ':' .. digits(burst),
  }
end

-- A declared number or rate, in its canonical form.
local function take_limit(from, option, text)
  local weighs = option.name == 'WEIGHTS'
  if not weighs and string_find(text, '/', 1, true) then
    local rate = rate_of(text)
    if not rate then
      bad(from, option.name, nil, 'has a rate that is not N/PER:BURST, or is out of range')
    end
    return rate.text
  end
  local number = string_find(text, '^%d+$') and to_number(text) or 0
  if number < 1 or number > (weighs and MAX_WEIGHT or MAX_COUNT) then
    bad(from, option.name, nil, 'has a number that is not 1 to ' .. (weighs and '1,000' or '1,000,000,000'))
  end
  return digits(number)
end

-- The limits of a queue, or its weights, sorted by name.
function limit_names.take_limits(from, option)
  local text = take.text(from, option.bytes, option.name)
  if text == '' then
    return text
  end
  local names, limits, seen_twice = {}, {}, false
  for _, entry in ipairs(limit_names.parts_of(text)) do
    local name, limit = string_match(entry, '^(.*)=([^=]*)$')
    if not name then
      bad(from, option.name, nil, 'has an entry without =')
    elseif name == '' then
      bad(from, option.name, nil, 'has an empty name')
    end
    limit = take_limit(from, option, limit)
    seen_twice = seen_twice or limits[name]
    names[#names + 1], limits[name] = name, limit
  end
  if seen_twice then
    bad(from, option.name, nil, 'has a name twice')
  end
  table.sort(names, limit_names.below)
  for i = 1, #names do
    names[i] = names[i] .. '=' .. limits[names[i]]
  end
  return table_concat(names, '\31')
end

-- The limit names of a message, sorted, each once; `what` names the argument in an error.
function limit_names.sort(from, text, what, i)
  if not string_find(text, '\31', 1, true) then
    return text
  end
  local given, names = limit_names.parts_of(text), {}
  table.sort(given, limit_names.below)
  for _, name in ipairs(given) do
    if name == '' then
      bad(from, what, i, 'has an empty name')
    elseif name ~= names[#names] then
      names[#names + 1] = name
    end
  end
  if #given > MAX_LIMIT_NAMES then
    bad(from, what, i, string_format('has %d names; at most %d', #given, MAX_LIMIT_NAMES))
  end
  return table_concat(names, '\31')
end

-- The group of a message.
function limit_names.check_group(from, text, what, i)
  if string_find(text, '\31', 1, true) then
    bad(from, what, i, 'has the byte 0x1F')
  end
  return text
end

-- The number and the label of a run (clause 30), without leading zeros.
function limit_names.check_run(from, text, what, i)
  local most, label = string_match(text, '^0*([1-9]%d*)(:.*)$')
  if not most or #most > 4 or to_number(most) < 2 or to_number(most) > MAX_BATCH then
    bad(from, what, i, 'is not N:LABEL with N from 2 to 1,024')
  end
  return most .. label
end

-- The limits that a queue declares, by the text of its option, with the names that were looked up in them.
local LIMITS = {}
local LIMITS_KNOWN = { count = 0, most = 100 }

local function parse(text)
  local parsed = { exact = {}, prefixes = {}, found = {}, count = 0 }
  for name, limit in string.gmatch(text, '([^\31]+)=([%d/:]+)') do
    limit = rate_of(limit) or to_number(limit)
    if string_sub(name, -1) == '*' then
      parsed.prefixes[#parsed.prefixes + 1] = { string_sub(name, 1, -2), limit }
    else
      parsed.exact[name] = limit
    end
  end
  table.sort(parsed.prefixes, function(a, b)
    return #a[1] > #b[1]
  end)
  return parsed
end

local function look_up_limit(parsed, name)
  local exact = parsed.exact[name]
  if exact then
    return exact
  end
  for _, prefix in ipairs(parsed.prefixes) do
    if string_sub(name, 1, #prefix[1]) == prefix[1] then
      return prefix[2]
    end
  end
  return NEVER
end

-- The limit of a name by the queue's option: a number, or the table of a rate; NEVER if it has none.
function limit_names.limit_of(text, name)
  if text == '' then
    return NEVER
  end
  local parsed = LIMITS[text]
  if not parsed then
    if LIMITS_KNOWN.count == LIMITS_KNOWN.most then
      LIMITS, LIMITS_KNOWN.count = {}, 0
    end
    parsed = parse(text)
    LIMITS[text], LIMITS_KNOWN.count = parsed, LIMITS_KNOWN.count + 1
  end
  local limit = parsed.found[name]
  if not limit then
    if parsed.count == MANY_NAMES then
      parsed.found, parsed.count = {}, 0
    end
    limit = look_up_limit(parsed, name)
    parsed.found[name], parsed.count = limit, parsed.count + 1
  end
  return limit
end

-- The names in the queue's option that are not prefixes.
function limit_names.declared(text)
  local names = {}
  for name in string.gmatch(text, '([^\31]+)=[%d/:]+') do
    if string_sub(name, -1) ~= '*' then
      names[#names + 1] = name
    end
  end
  return names
end

-- The messages of a group's turn by the queue's option.
function limit_names.weight_of(text, group)
  local weight = limit_names.limit_of(text, group)
  return weight < NEVER and weight or 1
end
