"""The HTTP port: what monitoring and container platforms ask for.

It is an edge like `api`, and must never do anything that gRPC's services could not do.
"""
