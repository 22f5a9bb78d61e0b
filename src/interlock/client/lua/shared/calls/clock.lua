-- The time in µs since 1970: the server's, for clients disagree. Tests put another in its place. Answers also its
-- digits, where they are at hand.
local function now_of(_)
  local time = redis_call('TIME')
  local seconds, part = time[1], time[2]
  return seconds * 1000000 + part, #part == 6 and seconds .. part
end
