"""The HTTP port: metrics and health, the Open Inference Protocol over REST, a JSON API, and the page.

It is an edge like `api`, and shares its admission, error table and decoders: routes check a request, call one operation
and build the answer. It must never do anything that gRPC's services could not do, run blocking work on the event loop,
or answer an error that is not in the table.
"""

from sharp_server.http.app import HttpParts, make_app
from sharp_server.http.port import HttpPort

__all__ = ["HttpParts", "HttpPort", "make_app"]
