-- The server's functions, under local names: looking up `string`, and `sub` in it, costs more than
-- most of the work done with it. They do not exist while a library is loaded, so the first call
-- looks them up.
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
