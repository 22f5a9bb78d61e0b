-- Asking for messages, as il1_lease and il1_next do.

local take_whole, take_word = take.whole, take.word
local wait_for, woken = waiters.wait_for, waiters.woken

-- Nearly all calls ask for one of a few durations.
local DURATIONS = {}
local DURATIONS_KNOWN = { count = 0, most = 100 }

local function take_duration(from)
  local text = from.args[from.at + 1]
  local duration = DURATIONS[text]
  if duration then
    from.at = from.at + 1
    return duration
  end
  duration = take_whole(from, 1, MAX_SPAN, 'duration')
  if DURATIONS_KNOWN.count == DURATIONS_KNOWN.most then
    DURATIONS, DURATIONS_KNOWN.count = {}, 0
  end
  DURATIONS[text], DURATIONS_KNOWN.count = duration, DURATIONS_KNOWN.count + 1
  return duration
end

local function take_wanted(from)
  return {
    count = take_whole(from, 1, MAX_BATCH, 'count'),
    duration = take_duration(from),
    kind = take_word(from, KINDS, 'kind'),
  }
end

-- Appends the messages to the reply; a caller that got none is entered as waiting. Answers the reply's
-- short form, where it has one.
local function lease(q, consumer, wait, wanted, reply)
  woken(q, consumer, wanted.kind)
  local granted, short = grant(q, consumer, wanted, reply)
  if not granted and wait > 0 then
    wait_for(q, wanted.kind, consumer, wait)
  end
  return short
end
