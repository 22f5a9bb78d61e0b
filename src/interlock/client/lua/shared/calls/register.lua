-- Function names are the server's, not the library's: with the wire version in them, libraries of two
-- versions stand side by side. Each has the flags that are declared of it.

local function register(name, body)
  local called = 'il' .. ABOUT.wire .. '_' .. name
  redis.register_function({
    function_name = called,
    flags = DECLARED.flags[name],
    callback = function(keys, args)
      if not redis_call then
        look_up()
      end
      local known, q = pcall(queue_of, called, keys)
      local done, reply = known, q
      if known then
        done, reply = pcall(body, q, { called = called, args = args, at = 0 })
        let_go(q, done and q.hashes and untouched(q))
      end
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
