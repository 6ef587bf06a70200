"""Keeps a server near its capacity for minutes or hours, with learning, lessons, snapshots, pages, restarting apps and
idle connections.

`python -m reliability.load --minutes 15` measures what the machine can do, sends 80 % of it, and reports p50 and p99
slice by slice, the codes of failed calls by RPC, and how memory, descriptors and files of the server move.
"""
