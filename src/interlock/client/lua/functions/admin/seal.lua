-- il1_seal: refuses puts until il1_reopen (clause 15). Answers 1, or 0 where it was so already.

register('seal', function(q, from)
  return seal(q, from, 1)
end)
