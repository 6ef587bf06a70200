"""A server within your test: no network, no torch, no training time.

    server = FakeServer()
    with server.client() as sharp:
        with sharp.learner("pets").learn() as stream:
            stream.send(x, y)
            stream.end_episode().wait()
        assert sharp.learner("pets").predict(x).labels.tolist() == y

It follows the contract of `sharp.v1` (sequence numbers, acknowledgements, events, versions, errors), and knows a class
by the mean of its raw values. `async_client()` is the same for asyncio, `serve()` opens a real port for programs in
other processes, `fail_next()` and `break_learn()` inject failures.
"""

from ._server import FakeServer

__all__ = ["FakeServer"]
