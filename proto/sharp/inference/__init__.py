"""Stubs of the Open Inference Protocol, for the server.

Its messages have the public names (`inference.…`), so a process can load them only once: don't import this package
together with another copy of the protocol, such as the one in tritonclient. The client and `sharp.v1` don't.
"""
