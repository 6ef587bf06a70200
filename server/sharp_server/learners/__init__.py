"""The learners that this server has: what each serves, holds and waits for, and what an operator may do to them.

A `ServedLearner` guards its own invariants; creating, forgetting, restoring, deleting and taking snapshots are steps on
it. It must never speak SQL or gRPC, and never block the event loop.
"""

from sharp_server.learners.registry import Registry
from sharp_server.learners.served_learner import ServedLearner

__all__ = ["Registry", "ServedLearner"]
