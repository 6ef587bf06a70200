"""What breaks a server on purpose, and checks that its promises hold. Run by hand from a clone; tests run short forms.

    python -m reliability.cluster        kills machines, links, Ray's head and PostgreSQL under a cluster
    python -m reliability.crash          kills server, trainer and connections while a stream is learned
    python -m reliability.fuzz           sends hostile messages, files and connections
    python -m reliability.fuzz.coverage  fuzzes the readers of messages, snapshots and the journal by coverage
    python -m reliability.faults         lets disk, clock, memory, trainer and certificate fail under a working server
    python -m reliability.http           sends requests made up from the description of the HTTP routes
    python -m reliability.load           keeps a server near its capacity for minutes
    python -m reliability.write_order    shows by strace that nothing is promised before it is flushed

Every run ends with exit code 1 if a promise was broken. Nothing that is installed may import this package but the
`sharp benchmark` command, which does so when it runs.
"""

import os

# Runs start processes as other users, which forks, while gRPC works in threads: its handlers may crash the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
