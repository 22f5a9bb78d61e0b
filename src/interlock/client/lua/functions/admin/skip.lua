-- il1_skip: id
-- Settles a held message, or one that backs off. Answers 1, or 0: it is neither.

register('skip', function(q, from)
  return stopped(q, from, function(m, asked)
    if not asked then
      q.counters[N.skipped] = q.counters[N.skipped] + 1
      if q.watched then
        events.happened(q, 'skip', m)
      end
      results.keep(q, m, 's', '')
      outcome.settle(q, m)
    end
    return true
  end)
end)
