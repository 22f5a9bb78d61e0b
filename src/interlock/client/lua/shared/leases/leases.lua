-- Leases (clause 8). A lease covers the messages of one call: one token, one deadline, up to
-- MAX_BATCH messages. t TOKEN has the time of the lease, the deadline, how many of its messages are
-- out, and the length of the consumer's name. A letter follows: p if all messages were marked as
-- plain ones, else g; or w while no handler has begun any of them, as reported by the holder; or s if
-- the holder of a suspect message has not reported that yet; or b once the holder has reported that
-- one begins: b is final, because reports on another connection may arrive late. The name and the
-- places follow; due has the deadline as well. A message's record has the token.

local function lease_from(token, text)
  local length = to_number(string_sub(text, 37, 40))
  return {
    told = string_sub(text, 41, 41),
    token = token, given = string_sub(text, 1, 16), deadline = string_sub(text, 17, 32),
    out = to_number(string_sub(text, 33, 36)), consumer = string_sub(text, 42, 41 + length), text = text,
  }
end

local function lease_of(q, token)
  local text = get(hash(q, 't'), token)
  return text and lease_from(token, text) or nil
end

local function places_of(lease)
  local text, places = lease.text, {}
  for at = 42 + #lease.consumer, #text, 16 do
    places[#places + 1] = string_sub(text, at, at + 15)
  end
  return places
end

-- Up to this many of its places, those that follow one of them.
local function places_behind(lease, place, count)
  local text, first, places = lease.text, 42 + #lease.consumer, {}
  local at = string_find(text, place, first, true)
  while (at - first) % 16 > 0 do
    at = string_find(text, place, at + 1, true)
  end
  for from = at + 16, math.min(#text, at + 16 * count), 16 do
    places[#places + 1] = string_sub(text, from, from + 15)
  end
  return places
end

local function keep_lease(q, lease)
  local rest = string_sub(lease.text, 37)
  set(hash(q, 't'), lease.token, lease.given .. lease.deadline .. string_format('%04d', lease.out) .. rest)
end

-- False once the deadline is reached, even if the expiry has not been applied yet.
local function alive(q, token)
  local lease = lease_of(q, token)
  return lease and to_number(lease.deadline) > q.now
end

-- The interface to other files: one table, because a library is limited to 200 names.
local leases = {
  from = lease_from, of = lease_of, places = places_of, places_behind = places_behind, keep = keep_lease, alive = alive,
}
