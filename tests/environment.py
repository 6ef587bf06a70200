"""The environment of all processes of the tests. Imported before gRPC is, which reads it when it is."""

from __future__ import annotations

import os

from devtools.server_process import ONE_THREAD

# Results do not depend on the machine's cores, and parallel tests do not fight for them.
os.environ |= ONE_THREAD
# Many tests start processes: each would compile the clone's modules for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# PostgreSQL is started as another user, which forks, while gRPC works in threads: its handlers may crash the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
