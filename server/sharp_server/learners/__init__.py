"""The learners that this server has: what each serves, holds and waits for, and what an operator may do to them.

A `ServedLearner` guards its own invariants; creating, forgetting, restoring and deleting are steps on it.
It must never speak SQL or gRPC, and never block the event loop.
"""
