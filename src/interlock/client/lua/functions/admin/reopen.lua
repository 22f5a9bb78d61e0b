-- il1_reopen: takes puts again. Answers 1, or 0 where it was so already.

register('reopen', function(q, from)
  return seal(q, from, 0)
end)
