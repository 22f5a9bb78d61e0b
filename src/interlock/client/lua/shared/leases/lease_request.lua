-- Asking for messages, as il1_lease and il1_next do.

local take_whole, take_word = take.whole, take.word
local wait_for, woken = waiters.wait_for, waiters.woken

-- The words for what is asked for, each with its kind: one with a plus is for runs, too.
local WORDS = {
  any = 'any', keyed = 'keyed', unkeyed = 'unkeyed', ['any+'] = 'any', ['keyed+'] = 'keyed',
  told = 'any, keyed, unkeyed, any+ or keyed+',
}

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
  local count, duration, word = take_whole(from, 1, MAX_BATCH, 'count'), take_duration(from), take_word(from, WORDS, 'kind')
  return { count = count, duration = duration, kind = WORDS[word], runs = word ~= WORDS[word] }
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
