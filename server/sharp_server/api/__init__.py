"""The edge: gRPC services that check a request, call one operation and build the answer.

Everything about the wire is here: who may call, what a request may hold, how an error is answered. It must never keep
the state of a learner, run torch on the event loop or touch a file, and nothing below may import it.
"""
