-- il1_forget: told in docs/reference/engine-wire.md; this library does not do it yet.

register('forget', function(_, from)
  bad(from, 'function', nil, 'is not there yet')
end)
