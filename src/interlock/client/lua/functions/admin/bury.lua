-- il1_bury: id
-- Makes a held message, or one that backs off, a dead letter. Answers 1, or 0: it is neither, or will be one,
-- or there is no room for a dead letter.

register('bury', function(q, from)
  return stopped(q, from, function(m, asked)
    if asked then
      return behind.has_dead_room(q) and not (m.extras and m.extras.DYING)
    elseif not behind.dies_later(q, m, nil, '') then
      if q.watched then
        events.happened(q, 'dead', m)
      end
      outcome.bury(q, m)
    end
  end)
end)
