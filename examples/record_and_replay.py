"""A recorded schedule replays to the same answers: what a queue did can be looked at again.

Every call is recorded with its time; payloads are left out. The text is short enough to go into a
bug report.
"""

from interlock import KeyedQueue
from interlock.testing import ManualClock, replay

clock = ManualClock()
queue: KeyedQueue[str] = KeyedQueue(clock=clock)
queue.record()

queue.put("debit", keys=["account:1", "account:2"])
queue.put("credit", keys="account:2")
first = queue.get()
clock.advance(0.5)
first.ack()
queue.get().ack()

text = queue.recording()
print(text)

answers = replay(text)
for line in answers:
    print(line)
assert answers == replay(text)
leased = [line for line in answers if line.startswith("leased")]
assert leased[0].startswith("leased 1 ") and leased[-1].startswith("leased 2 ")
