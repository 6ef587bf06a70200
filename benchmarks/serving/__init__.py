"""Measures the running service: do predictions notice training, and how near is it to what gRPC, engine and disk allow.

`python -m benchmarks.serving` prints every figure beside the one to reach; both sides of a ratio are measured in turns,
in one run.
"""
