"""The `sharp` command: everything that is done from a terminal."""

import os

# gRPC's own core writes to stderr in a form of its own. It reads this once, when grpc is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
