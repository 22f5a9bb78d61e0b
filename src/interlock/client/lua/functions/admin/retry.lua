-- il1_retry: id
-- A held message, or one that backs off, is ready at once; one that was held has its attempt one higher.
-- Answers 1, or 0: it is neither.

register('retry', function(q, from)
  return stopped(q, from, function(m, asked)
    if not asked then
      if m.state == 'H' then
        extra(m, 'ATTEMPT', attempt_of(m) + 1)
        behind.retry(q, m)
      end
      if q.watched then
        events.happened(q, 'readied', m)
      end
      make_ready(q, m)
    end
    return true
  end)
end)
