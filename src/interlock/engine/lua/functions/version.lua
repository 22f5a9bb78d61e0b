-- il1_version: wire version, hash of the library, features. Takes no key, for it asks no queue.

redis.register_function({
  function_name = 'il' .. WIRE .. '_version',
  flags = { 'no-writes', 'allow-stale' },
  callback = function()
    return { WIRE, HASH, 'keys=' .. MAX_KEYS }
  end,
})
