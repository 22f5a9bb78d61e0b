-- What the server gives, by names of our own: to look `string` up, and `sub` in it, costs more than most of
-- what is done with it. While a library is loaded there is nothing of this yet, so the first call looks.
local redis_call = nil
local string_sub = nil
local string_byte = nil
local string_find = nil
local string_match = nil
local string_format = nil
local table_concat = nil
local table_unpack = nil
local struct_pack = nil
local struct_unpack = nil
local to_number = nil

local function look_up()
  redis_call, table_unpack, to_number = redis.call, unpack, tonumber
  string_sub, string_byte, string_find = string.sub, string.byte, string.find
  string_match, string_format, table_concat = string.match, string.format, table.concat
  struct_pack, struct_unpack = struct.pack, struct.unpack
end
