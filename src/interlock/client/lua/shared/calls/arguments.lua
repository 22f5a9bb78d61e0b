-- Reading arguments. Everything is read and checked before the first write: a function is atomic,
-- but what it wrote before an error stays.

-- tostring() would write 1.7e+15.
local function digits(number)
  return string_format('%d', number)
end

-- Errors show only a part of the argument: it may be megabytes, and any bytes.
local function shown(value)
  return (string.gsub(string_sub(value, 1, 32), '[^%w%p ]', '?'))
end

local function refuse(code, text, ...)
  error({ refused = code .. ' ' .. string_format(text, ...) })
end

-- `what` may have a %d for `index`: it is formatted only for an error.
local function bad(from, what, index, wrong)
  refuse('BADARG', '%s: %s %s', from.called, string_format(what, index), wrong)
end

local function more(from)
  return from.at < #from.args
end

local function take_argument(from, what, index)
  local at = from.at + 1
  local value = from.args[at]
  if not value then
    bad(from, what, index, 'is missing')
  end
  from.at = at
  return value
end

local function take_text(from, most, what, index)
  local value = take_argument(from, what, index)
  if #value > most then
    bad(from, what, index, string_format('has %d bytes; at most %d', #value, most))
  end
  return value
end

-- The form of nearly every number: a pattern costs ten times as much.
local SMALL = {}
for i = 0, 128 do
  SMALL[i .. ''] = i
end

local function take_whole(from, least, most, what, index)
  local value = take_argument(from, what, index)
  local number = SMALL[value]
    or string_find(value, '^%-?%d+$') and #value <= 17 and to_number(value)
  if not number or number < least or number > most then
    bad(from, what, index, string_format("is '%s'; a whole number from %s to %s",
      shown(value), digits(least), digits(most)))
  end
  return number + 0 -- not -0
end

-- Ids and tokens stay text. A leading zero would be a second spelling of the same number.
local function take_number(from, what, index)
  local value = take_argument(from, what, index)
  if #value > 16 or not string_find(value, '^[1-9]%d*$') then
    bad(from, what, index, 'is not a number that this queue gives')
  end
  return value
end

local function take_end(from)
  if more(from) then
    refuse('BADARG', '%s: %d arguments too many', from.called, #from.args - from.at)
  end
end

-- The caller, and the number of the call: 0 if its answer need not be kept.
local function take_caller(from)
  local consumer = take_text(from, MAX_TEXT, 'consumer')
  local call = take_whole(from, 0, MAX_NUMBER, 'call')
  if consumer == '' and call > 0 then
    -- All callers without a name would get each other's replies.
    bad(from, 'consumer', 0, 'is empty, which only call 0 may have')
  end
  return consumer, call
end

-- One of a few words.
local function take_word(from, words, what, index)
  local value = take_argument(from, what, index)
  if words[value] == nil or value == 'told' then
    bad(from, what, index, 'is not ' .. words.told)
  end
  return value
end

-- The time that the caller would wait, µs; 0: not at all.
local function take_wait(from)
  return take_whole(from, 0, MAX_SPAN, 'wait')
end

-- Appends `count` keys to `list`. A key named twice counts once, and one named in both ways is exclusive.
local function take_keys(from, count, what, i, seen, list)
  local args, at, wrong = from.args, from.at, nil
  for k = 1, count do
    local key = args[at + k]
    if not key then
      wrong = 'is missing'
    elseif key == '' then
      wrong = 'is empty'
    elseif #key > MAX_KEY_BYTES then
      wrong = string_format('has %d bytes; at most %d', #key, MAX_KEY_BYTES)
    end
    if wrong then
      bad(from, what .. '[' .. k .. ']', i, wrong)
    end
    if not seen[key] then
      seen[key] = true
      list[#list + 1] = key
    end
  end
  from.at = at + count
end

-- The interface to other files: one table, because a library is limited to 200 names.
local take = {
  argument = take_argument, text = take_text, whole = take_whole, number = take_number, caller = take_caller,
  word = take_word, wait = take_wait, keys = take_keys,
}
