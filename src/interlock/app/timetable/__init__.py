"""Calls that are sent by the time of the day, or every so often: ``@app.cron``, ``@app.every``.

Any worker may send the call of a tick, each tick is sent once, and ticks that came while no worker
ran are known. What remembers that is the engine, by functions that it has anyway: beside a queue
QUEUE with tasks stands a queue ``QUEUE:timetable`` with timers. A timer is a message that says
which tick of which entry comes next; it is delayed until then, and its key is the entry's name.

Each worker waits for timers as for any message. Whoever is handed one (the lease sees to it that
nobody else is)

1. sends the calls that are due, each with a dedup string of the tick's time,
2. puts the timer of the next tick, with a dedup string of that tick's time,
3. acknowledges the timer it was handed.

A worker that dies in between does no harm: the lease runs out, another is handed the same timer,
and whatever was put already is known by its string. The new timer cannot be handed out before the
old one is settled, for both have the same key, so its string is known for as long as it may be put
again; that of a call is known until the call is settled, and then for the larger of an hour and
two periods. (So a tick could be sent twice only where a worker dies between 1 and 3, the call is
handled all the same, and no worker takes the timer for that long after; and the policies "once"
and "skip" then send a later tick, not that one.)

- The pending timer is the memory. If no worker ran for days, it is late, and what is missed is all
  from its tick to now. There is nothing else that would have to be kept, and no clock but the
  engine's: now is what a hub tells as its time for dates, and on Redis what the lease says (its
  deadline less its length), judged by the same policy. The clocks of workers have no part in it.
- A delay is elapsed time and a tick is a date, so a timer sleeps for a minute at most and is then
  put back. So it follows a clock that is set, and a machine that slept. If the clock was set back
  by up to three hours, it waits: no tick comes again. If by more, another timer takes its place.
- A worker looks, when it begins and then each minute, whether each of its entries has a timer, and
  puts one for the next tick where it has not: for a new entry, or an engine that came back empty.
  Two that do so at once put the same dedup string.
- A timer that a worker's own app does not have so (the entry is gone, or its schedule is another)
  goes back, for a worker of another release may have it. When nobody wants it, it is dropped. So a
  new release puts its own timers, and the old ones end with the last worker of the old release.
  While both run, both timetables hold; a tick that both have is one call, by its string.
- To pause the timetable of a queue is to pause ``QUEUE:timetable``, that of an entry is to pause
  its key there. What is missed meanwhile is missed.
"""

from interlock.app.timetable.entry import Args, Entry, Kwargs, Missed
from interlock.app.timetable.schedule import Cron, Every, Schedule

__all__ = ["Args", "Cron", "Entry", "Every", "Kwargs", "Missed", "Schedule"]
