"""The server in virtual time: its own code, with every order of events that a seed can bring about.

Streams, lessons, training, publishing and operators' changes run against the real composition root, on an event loop
whose clock jumps and whose threads, disk, trainer and network take as long as a seed says. Disks fill up, trainers die,
servers crash: whatever is not durable is gone then, and another server takes up the rest. Afterwards everything that
was acknowledged must be known exactly once, and every version must be what the engine, called directly, makes of the
journal's order, bit for bit. A schedule is its seed: the same seed gives the same order of events, always.

In `leases` two such servers share a journal and take a learner from each other: whoever lost it writes nothing.

It must never re-implement what it tests; and what only real files and processes can show (fsync, torn writes, SIGKILL)
is left to `reliability.crash` and `reliability.write_order`.
"""
