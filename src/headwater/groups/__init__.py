"""The group coordinator: who is a member, who leads, which generation, when a silent member is out. PURE.

No clock, no socket, no disk: each call is told `now_ms`, and an answer that has to wait is a token that the caller
gave. A call that can answer others too (a join that completes a rebalance answers all who wait for it) leaves the
answers in the coordinator; the caller takes them after each call:

    coordinator = Coordinator(Limits(...))
    coordinator.join(Join(...), token, now_ms)      # also sync(); answers its token exactly once, perhaps much later
    coordinator.heartbeat(...)                      # also check_commit(), leave(): answer at once, or raise a WireError
    for token, answer in coordinator.take_answers(): ...
    coordinator.tick(now_ms)                        # expires who is due; next_tick_ms() says when to call it

Cursors are not here: the shell stores them once `check_commit` has let a commit pass.

Reading order: states.py (the table), coordinator.py (the face), events.py (what each pair of state and event does),
phases.py (the rebalance itself), group.py, ledger.py, timers.py.
"""

from headwater.groups.answers import Answer, Identity, Join, Joined, Joiner, Protocol, Refused, Sync, Synced, Token
from headwater.groups.coordinator import Coordinator
from headwater.groups.ledger import Limits
from headwater.groups.states import Event, State

__all__ = [
    "Answer",
    "Coordinator",
    "Event",
    "Identity",
    "Join",
    "Joined",
    "Joiner",
    "Limits",
    "Protocol",
    "Refused",
    "State",
    "Sync",
    "Synced",
    "Token",
]
