"""The HTTP port: what monitoring and container platforms ask for.

It is an edge like `api`: it answers, and keeps nothing of what it reads. It must never do anything that gRPC's services
could not do.
"""

from sharp_server.http.app import HttpPort

__all__ = ["HttpPort"]
