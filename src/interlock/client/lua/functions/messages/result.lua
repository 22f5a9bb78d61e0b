-- il1_result: id wait
-- Answers pending; acked and the result; dead and the error; expired and the reason; cancelled;
-- skipped; or gone. It answers immediately, because a function cannot wait. For a dead letter it
-- returns the newest error: see outcome.lua.

register('result', function(q, from)
  local id = take.number(from, 'id')
  take.wait(from)
  take_end(from)
  look(q)
  if find(q, id) then
    return { 'pending' }
  end
  local dead = redis_call('HGET', q.x, id)
  if dead then
    return { 'dead', string_match(cmsgpack.unpack(dead)[1], '^[^\30\31]*') }
  end
  local text = redis_call('HGET', q.res, id)
  if not text or to_number(string_sub(text, 2, 17)) <= q.now then
    return { 'gone' }
  end
  local ended = results.ENDS[string_sub(text, 1, 1)]
  if ended == 'acked' or ended == 'expired' then
    return { ended, string_sub(text, 18) }
  end
  return { ended }
end)
