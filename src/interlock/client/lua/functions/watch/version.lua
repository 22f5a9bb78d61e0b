-- il1_version: wire version, hash of the library, features; among them the release, and the layout it stores.
-- Takes no key, for it asks no queue.

redis.register_function({
  function_name = 'il' .. ABOUT.wire .. '_version',
  flags = { 'no-writes', 'allow-stale' },
  callback = function()
    return {
      ABOUT.wire, ABOUT.hash, 'keys=' .. MAX_KEYS, 'release=' .. ABOUT.release, 'layout=' .. LAYOUT, 'events', 'larger',
      'deepest', 'front', 'dead-keys',
    }
  end,
})
