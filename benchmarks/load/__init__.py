"""Keeps a server near its capacity for minutes, with learning, snapshots, restarting clients and a crowd connected.

`python -m benchmarks.load --minutes 10` reports errors by code, p50 and p99, and how memory of both processes moves.
"""
