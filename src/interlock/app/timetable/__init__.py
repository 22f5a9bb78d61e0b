"""Calls that are sent at times of the day, or at intervals: ``@app.cron``, ``@app.every``.

Any worker may send the call of a tick, each tick is sent once, and ticks that came while no worker
ran are known. The engine remembers them, with its existing functions: a queue QUEUE with tasks has
a second queue ``QUEUE:timetable`` with timers. A timer is a message that names the next tick of an
entry; it is delayed until then, and its key is the entry's name.

Each worker waits for timers as for any message. The worker that leases one (only one can)

1. sends the calls that are due, each with a dedup string of the tick's time,
2. puts the timer of the next tick, with a dedup string of that tick's time,
3. acknowledges the timer it leased.

A worker that dies in between does no harm: the lease expires, another worker leases the same timer,
and messages that were put already are known by their strings. The new timer cannot be leased before
the old one is settled, because both have the same key, so its string is known for as long as it may
be put again. The string of a call is known until the call is settled, and then for the larger of an
hour and two periods. (So a tick can be sent twice only if a worker dies between 1 and 3, the call
is handled nevertheless, and no worker takes the timer for that long afterwards; even then the
policies "once" and "skip" send a later tick, not that one.)

- The pending timer is the only stored state. If no worker ran for days, it is late, and every tick
  from its own to now was missed. The only clock is the engine's: the present time is a hub's time
  for dates and, on Redis, the time of the lease (its deadline minus its length), corrected by the
  same policy. The clocks of workers are not used.
- A delay is elapsed time and a tick is a date, so a timer sleeps for a minute at most and is then
  returned. So it follows a clock that is set, and a machine that slept. If the clock was set back
  by up to three hours, it waits: no tick fires twice. If by more, another timer replaces it.
- At its start and then each minute, a worker checks that each of its entries has a timer, and puts
  one for the next tick if it is missing: for a new entry, or on an engine that restarted empty. Two
  workers that do so at once put the same dedup string.
- A timer that does not match the worker's app (the entry is gone, or its schedule differs) is
  returned, because a worker of another release may have the entry. If none takes it, it is dropped.
  So a new release puts its own timers, and the old ones end with the last worker of the old
  release. While both run, both timetables apply; a tick that both have is one call, by its string.
- An entry that is stored at run time (``app.timetable.add``) has its definition in its timers, each
  of which is the next one's source; no worker puts one that is missing. A change of it is a message
  with the entry's key: the worker that leases it cancels the timers behind it, which nobody can
  lease meanwhile, and puts a new one. A timer has the number of the change that it comes from, also
  in its dedup string: an entry may be changed back to a schedule whose timers are still known.
- To pause the timetable of a queue, pause ``QUEUE:timetable``; to pause an entry, pause its key
  there. The policy for missed ticks applies to the ticks of that time.
"""

from interlock.app.timetable.entry import Args, Entry, Kwargs, Missed
from interlock.app.timetable.schedule import Cron, Every, Schedule
from interlock.app.timetable.timetable import Timetable

__all__ = ["Args", "Cron", "Entry", "Every", "Kwargs", "Missed", "Schedule", "Timetable"]
