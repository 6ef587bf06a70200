"""The speed of the engine against floors: a plain dense network, a bare matrix product, the disk.

    python -m benchmarks.speed [--only sequence|answers|…] [--data-root DIR] [--device cuda] [--output FILE]

Both sides are measured in one process, in turns, with the same number of threads, so that a busy machine slows both.
"""
