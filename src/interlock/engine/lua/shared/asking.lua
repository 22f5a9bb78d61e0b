-- Asking for messages, as il1_lease and il1_next do.

local function take_wanted(from)
  return {
    count = take_whole(from, 1, MAX_BATCH, 'count'),
    duration = take_whole(from, 1, MAX_SPAN, 'duration'),
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
