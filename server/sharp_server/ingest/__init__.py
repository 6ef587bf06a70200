"""A Learn call: from batches and marks that arrive to what the journal holds, and the answers on the way.

It keeps the order of sequence numbers, bounds what waits, and finds automatic boundaries. It must never acknowledge
what is not durable, and never train.
"""

from sharp_server.ingest.session import LearnSession, SessionTools

__all__ = ["LearnSession", "SessionTools"]
