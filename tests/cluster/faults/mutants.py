"""Nodes with a fault of their own, which runs must find: the checks are worth as much as that.

Each is a piece of Python that a node's interpreter runs before the node.
"""

from __future__ import annotations

MUTANTS = {
    "unfenced": """
from interlock.cluster import fence
judge = fence.Fence.judge
def believing(self, entry):
    verdict = judge(self, entry)
    return fence.Verdict.NEXT if verdict is fence.Verdict.FENCED else verdict
fence.Fence.judge = believing
""",
    "early answers": """
from interlock.cluster import machine
perform = machine.Machine.perform
def hasty(self):
    perform(self)
    if self.primary is not None:
        for number, reply in self.primary._batch.own:
            self.requests.reply(number, reply, 0)
machine.Machine.perform = hasty
""",
    "done twice": """
from interlock.cluster import forwarder
again = forwarder.Forwarder._again
def twice(self):
    self._passing = self._node.machine.leader.token
    again(self)
forwarder.Forwarder._again = twice
""",
    "forgetful": """
from interlock.cluster import replica
join = replica.Replica.join
count = 0
def forgetting(self, changes, *more):
    global count
    count += 1
    return join(self, list(changes)[1:] if count % 40 == 0 else changes, *more)
replica.Replica.join = forgetting
""",
    "early reads": """
from interlock.cluster import reader
follow = reader.Reader._follow
def soon(self, stream):
    with self._lock:
        self._machine._joined()
    self._fresh()
    return follow(self, stream)
reader.Reader._follow = soon
""",
}
