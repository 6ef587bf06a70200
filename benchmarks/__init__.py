"""Measurements, run by hand from a clone: the paper's tables, the learner's own, speed, and a search.

    python -m benchmarks.paper --dataset mnist --data-root DIR     accuracy beside the paper's
    python -m benchmarks.learner --data-root DIR                   what the default learner is worth
    python -m benchmarks.ring --dataset mnist --data-root DIR      the same stream for every rival
    python -m benchmarks.speed                                     the engine beside a dense network
    python -m benchmarks.serving                                   the server beside what it cannot beat
    python -m benchmarks.search SETTINGS.toml --data-root DIR      settings compared on validation data

`datasets` reads examples, `reporting` runs and reports, `results` keeps what the documents quote. What breaks a server
on purpose is in `reliability`. Nothing that is installed may import this package but the `sharp benchmark` command,
which does so when it runs.
"""
