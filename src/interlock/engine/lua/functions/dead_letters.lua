-- il1_dead_letters: count
-- The first so many dead letters, in the order in which they died: for each id, attempts, time, error,
-- payload, exclusive, shared, then the keys.

register('dead_letters', { 'no-writes' }, function(q, from)
  local count = take_whole(from, 1, MAX_BATCH, 'count')
  take_end(from)
  local reply = {}
  for _, id in ipairs(redis.call('ZRANGE', q.xo, 0, count - 1)) do
    local record, attempts, text, time = cmsgpack.unpack(redis.call('HGET', q.x, id))
    local m = unpack_record(id, record)
    local fields = { id, tostring(attempts), time, text, m.payload }
    fields[6], fields[7] = tostring(#m.exclusive), tostring(#m.shared)
    for _, list in ipairs({ fields, m.exclusive, m.shared }) do
      for _, value in ipairs(list) do
        reply[#reply + 1] = value
      end
    end
  end
  return reply
end)
