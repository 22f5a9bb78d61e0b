-- Returns the server's time in µs since 1970, and its decimal text if no digits have to be padded. Clients' clocks
-- are not used, because they differ. Tests replace this function.
local function now_of(_)
  local time = redis_call('TIME')
  local seconds, part = time[1], time[2]
  return seconds * 1000000 + part, #part == 6 and seconds .. part
end
