"""Every setting of the server, and where its values come from.

`model` is one tree of frozen dataclasses; `sources` reads flags, environment and file into it.
It must never read the process's environment by itself, and imports nothing of the server.
"""
