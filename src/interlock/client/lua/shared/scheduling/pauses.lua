-- Paused keys (clause 22). The hash pk has them. A ready message of a paused key is set aside when
-- it comes up, under the first such key: so a pause costs nothing, however many messages it
-- affects.

local take_text = take.text
local lane_of = lanes.of

local function look_at_pauses(q, messages)
  if q.counters[N.paused] == 0 then
    return
  end
  local keys = {}
  for _, m in ipairs(messages) do
    if m then
      for _, list in ipairs({ m.exclusive, m.shared }) do
        for _, key in ipairs(list) do
          keys[#keys + 1] = key
        end
      end
    end
  end
  prefetch(hash(q, 'pk'), keys)
end

-- The paused keys of a message.
local function paused_keys(q, m)
  local paused = {}
  if q.counters[N.paused] > 0 then
    for _, list in ipairs({ m.exclusive, m.shared }) do
      for _, key in ipairs(list) do
        if get(hash(q, 'pk'), key) then
          paused[#paused + 1] = key
        end
      end
    end
  end
  return paused
end

local function paused_key(q, m)
  return q.counters[N.paused] > 0 and paused_keys(q, m)[1]
end

-- Sets a ready message aside. Cancelled entries are removed when they are the greater part.
local function set_aside(q, m, key)
  local name = name_of(q, 'park:' .. key)
  m.state = 'P'
  changed(q, m)
  local count = redis_call('RPUSH', name, m.place)
  local text = get(hash(q, 'l'), key)
  if count > 64 and count > 2 * (text and lane_of(q, text).depth or 0) then
    local places = redis_call('LRANGE', name, 0, -1)
    local live = {}
    for i, one in ipairs(messages_at(q, places)) do
      if one and one.state == 'P' then
        live[#live + 1] = places[i]
      end
    end
    redis_call('DEL', name)
    bulk('RPUSH', name, live)
  end
end

local function take_paused(from)
  local keys = {}
  while more(from) do
    local k = #keys + 1
    if k > MAX_KEYS then
      refuse('TOOBIG', '%s: more than %d keys', from.called, MAX_KEYS)
    end
    local key = take_text(from, MAX_KEY_BYTES, 'keys[%d]', k)
    if key == '' then
      bad(from, 'keys[%d]', k, 'is empty')
    end
    keys[k] = key
  end
  return keys
end

-- The interface to other files: one table, because a library is limited to 200 names.
local pauses = {
  look_at = look_at_pauses, of = paused_keys, first_of = paused_key, set_aside = set_aside, take = take_paused,
}
