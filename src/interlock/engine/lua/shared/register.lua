-- Function names are the server's, not the library's: with the wire version in them, libraries of two
-- versions stand side by side.

local function run(called, body, keys, args)
  local q = queue_of(called, keys)
  local done, reply = pcall(body, q, reader(called, args))
  let_go(q, done and q.hashes and untouched(q))
  if not done then
    error(reply, 0)
  end
  return reply
end

local function register(name, flags, body)
  local called = 'il' .. WIRE .. '_' .. name
  redis.register_function({
    function_name = called,
    flags = flags,
    callback = function(keys, args)
      local done, reply = pcall(run, called, body, keys, args)
      if done then
        return reply
      end
      -- Refused, before anything was written. The server would add where in the library that was.
      if type(reply) == 'table' and reply.refused then
        return redis.error_reply(reply.refused)
      end
      return error(reply)
    end,
  })
end
