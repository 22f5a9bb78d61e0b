-- Taking ready messages for a lease, in order, and with a message those that ride with it (see runs.lua).

local look_at_pauses, paused_key, set_aside = pauses.look_at, pauses.first_of, pauses.set_aside
local pop_ready, push_back, ready_at = ready_sources.pop, ready_sources.push_back, ready_sources.at

-- Bytes of the payload of a plain record.
local function plain_size(text)
  local high, low = string_byte(text, 3, 4)
  local at = 5
  for _ = 1, high * 256 + low do
    local long, short = string_byte(text, at, at + 1)
    at = at + 2 + long * 256 + short
  end
  return #text - at + 1
end

-- Whether a lease takes no more than these messages, by their number and their payloads. Those of plain ones are counted only
-- if they might not fit: a record is longer than its payload. `bytes` are those of the first `counted`.
local function is_enough(taken, sum)
  if #taken == MAX_BATCH then
    return true
  end
  local m = taken[#taken]
  sum.most = sum.most + (type(m) == 'string' and #m or size_of(m))
  if sum.most < MAX_TOLD then
    return false
  end
  for i = sum.counted + 1, #taken do
    local one = taken[i]
    sum.bytes = sum.bytes + (type(one) == 'string' and plain_size(one) or size_of(one))
  end
  sum.counted, sum.most = #taken, sum.bytes
  return sum.bytes >= MAX_TOLD
end

-- Takes those that ride with a message. Answers how many keys the call has then, whether it may take no more, and whether
-- another message may come before the rest.
local function take_riders(q, head, taken, of, keys, sum)
  local c, run, first, is_full, another = q.counters, runs.begin(head), #taken + 1, false, false
  local m = runs.next(q, run)
  while m do
    keys = keys + #m.exclusive + #m.shared
    if keys > MAX_BATCH_KEYS then
      is_full = true
      break
    end
    m.state = 'Y'
    another = m.limit and slots.take(q, m) or another
    taken[#taken + 1] = m
    of[#taken] = m.place
    is_full = is_enough(taken, sum)
    m = not is_full and runs.next(q, run)
  end
  c[N.riding] = c[N.riding] + #taken - first + 1
  for i = first, #taken do
    taken[i].riders = #taken - i
  end
  return keys, is_full, another
end

-- Leases as many messages as are wanted, in order and each with its riders, and their places; a plain one (see plain.lua) by its
-- record. Messages that are found to be paused (clause 22) or refused by a limit (26) are set aside. `popped` were already
-- taken from `source`, or in turns; `texts` are their records. Answers also whether the message is leased alone, because its lease
-- expired while its handler may have run (clause 9).
local function take_ready(q, wanted, popped, texts, source)
  local c, taken, of, keys, aside = q.counters, {}, {}, 0, 0
  local kind, count, with_runs = wanted.kind, wanted.count, wanted.runs and q.counters[N.running] > 0
  local sum, most = { bytes = 0, counted = 0, most = 0 }, 128
  if c[N.halted] > 0 then
    return taken, of
  end
  -- It rises with each rider.
  while popped or #taken < count and aside < MAX_READIED and ready_count(c, kind) > 0 do
    local places, from, only = popped, nil, source
    if source and source.in_turns then
      from, only = source, nil
    end
    if not popped then
      places, from, only = pop_ready(q, kind, math.min(count - #taken, most))
      most = math.min(2 * most, 128)
    end
    local pauses = c[N.paused] > 0
    local found = ready_at(q, places, pauses, texts)
    popped, texts = nil, nil
    if pauses then
      look_at_pauses(q, found)
    end
    if q.slots then
      slots.look_at(q, found)
    end
    for i = 1, #places do
      local m = found[i]
      if type(m) == 'string' then
        local high, low = string_byte(m, 3, 4)
        keys = keys + high * 256 + low
        if keys > MAX_BATCH_KEYS and #taken > 0 then
          push_back(q, places, i, from, only)
          return taken, of
        end
        taken[#taken + 1] = m
        of[#taken] = places[i]
        if is_enough(taken, sum) then
          push_back(q, places, i + 1, from, only)
          return taken, of
        end
      elseif not m or m.gone or m.state ~= 'R' and m.state ~= 'A' then
        local half = (only or from[i]).half
        c[half.stale] = c[half.stale] - 1
      else
        local paused, admitted, another = pauses and paused_key(q, m), true, false
        local is_full, first_rider, alone = false, #taken + 2, m.extras and m.extras.ALONE
        if m.limit then
          admitted, another = slots.admit(q, m, paused)
        elseif paused then
          set_aside(q, m, paused)
          admitted = false
        end
        if not admitted then
          aside = aside + 1
          -- It used no turn: another group may come next.
          another = another or from and from.in_turns
        else
          keys = keys + #m.exclusive + #m.shared
          -- One message may exceed the remaining keys, or it could never be leased.
          if (keys > MAX_BATCH_KEYS or alone) and #taken > 0 then
            push_back(q, places, i, from, only)
            return taken, of
          end
          another = m.limit and slots.take(q, m)
          taken[#taken + 1] = m
          of[#taken] = places[i]
          is_full = is_enough(taken, sum) or alone
          if with_runs and not is_full and runs.may_have(m) then
            local moved
            keys, is_full, moved = take_riders(q, m, taken, of, keys, sum)
            count = count + #taken - first_rider + 1
            -- Riders use turns, too: another group may come next.
            another = another or moved or #taken >= first_rider and from and from.in_turns
          end
        end
        if is_full or another then
          -- It may come before the rest. Where one is moved, others follow: few are taken at a time.
          push_back(q, places, i + 1, from, only)
          if from and from.in_turns then
            if not admitted then
              turns.give_back(q, from[i])
            end
            for k = first_rider, #taken do
              turns.ride(q, taken[k], kind)
            end
          end
          if is_full then
            return taken, of, alone
          end
          most = 1
          break
        end
      end
    end
    if q.turns and q.slots then
      slots.refresh(q)
    end
  end
  return taken, of
end

