-- Plain messages: only exclusive keys and a payload, as most are. While no message waits behind
-- them and no barrier is pending, they are leased and settled from their records, without a table
-- for each. This file does the same as the general path, in half the time, and leaves all other
-- cases to that.

local short_node = lanes.short_node
local note_ended = results.note_ended
local alive, end_some = leases.alive, leases.end_some
local tell_plain = forms.tell_plain

-- The keys of a plain record, whose flags are at `from`; and where the payload begins.
local function plain_keys(text, from)
  local flags, high, low, long, short = string_byte(text, from, from + 4)
  if flags ~= 48 then
    -- A limit name, or a group.
    from = from + 2 + high * 256 + low
    high, low, long, short = string_byte(text, from + 1, from + 4)
  end
  if high == 0 and low == 1 then
    local last = from + 4 + long * 256 + short
    return { string_sub(text, from + 5, last) }, last + 1
  end
  return keys_at(text, from + 3, high * 256 + low)
end

-- Which of these acknowledgements are of plain messages with a valid lease: their keys, false for
-- others.
local function plain_ones(q, list, texts)
  local seen, living, all, plain, marks = {}, {}, {}, {}, hash(q, 'lt').values
  for i = 1, #list do
    local one, text = list[i], texts[i]
    local keys = false
    if not seen[one.id] and text then
      seen[one.id] = true
      -- Marked, or 'L'; and flags of 0.
      local from, token = 2, marks[one.id]
      if not token and string_byte(text) == 76 then
        from, token = 18, string_sub(text, 2, 17)
      end
      if token == one.token and string_byte(text, from) == 48 and (one.verb == 'ACK' or one.verb == 'DONE') then
        if living[one.token] == nil then
          living[one.token] = alive(q, one.token) or false
        end
        if living[one.token] then
          keys, one.payload = plain_keys(text, from)
          for k = 1, #keys do
            all[#all + 1] = keys[k]
          end
        end
      else
        q.messages[one.id] = open_record(q, one.id, text)
      end
    end
    plain[i] = keys
  end
  prefetch(hash(q, 'l'), all)
  return plain
end

-- Settles the plain ones of a list; answers the others.
local function settle_plain(q, list, reply)
  local c = q.counters
  -- A watcher gets all events in their order, and a key may open between two.
  if c[N.barriers] > 0 or q.watched or may_leave(c) and behind.has_shut(c) then
    return list
  end
  local ids, ended, left = {}, {}, {}
  for i = 1, #list do
    ids[i] = list[i].id
  end
  local texts, marks, ready = unknown_records(q, ids), hash(q, 'lt'), {}
  for i = 1, #ids do
    if texts[i] and string_byte(texts[i]) == 82 then -- 'R'
      ready[#ready + 1] = ids[i]
    end
  end
  prefetch(marks, ready)
  local plain = plain_ones(q, list, texts)
  local l = hash(q, 'l')
  local values, written, bytes, count = l.values, l.changed, 0, 0
  for i = 1, #list do
    local one, keys = list[i], plain[i]
    local alone = keys
    if keys then
      local node = short_node(one.id)
      for k = 1, #keys do
        alone = alone and values[keys[k]] == node
      end
      if not alone then
        q.messages[one.id] = open_record(q, one.id, texts[i])
      end
    end
    if alone then
      for k = 1, #keys do
        values[keys[k]] = false
        written[#written + 1] = keys[k]
      end
      c[N.lanes] = c[N.lanes] - #keys
      if marks.values[one.id] then
        set(marks, one.id, false)
      end
      q.messages[one.id] = false
      q.gone[#q.gone + 1] = one.id
      bytes, count = bytes + #texts[i] - one.payload + 1, count + 1
      ended[one.token] = (ended[one.token] or 0) + 1
      reply[one.answer] = 'ACKED'
    else
      left[#left + 1] = one
    end
  end
  for token, some in pairs(ended) do
    end_some(q, token, some)
  end
  c[N.acks], c[N.unsettled], c[N.bytes] = c[N.acks] + count, c[N.unsettled] - count, c[N.bytes] - bytes
  if count > 0 then
    note_ended(q, q.gone)
  end
  return left
end

-- Leases a plain message: its part of the reply, and its record with the token.
function forms.lease_plain(q, place, text, token, reply, at)
  local written = q.written
  written[#written + 1] = place
  written[#written + 1] = 'L' .. token .. string_sub(text, 2)
  return tell_plain(place, text, reply, at)
end
