"""Benchmarks: the paper's tables, the speed of the engine, and the search for settings. Run by hand from a clone.

    python -m benchmarks.paper --dataset mnist --data-root DIR
    python -m benchmarks.speed
    python -m benchmarks.search SETTINGS.toml --data-root DIR

Nothing of the project may import this package but the `sharp benchmark` command, which does so lazily.
"""
