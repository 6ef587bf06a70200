"""The paper's benchmark: learn a sequence of episodes, judge after each, and show our figures beside the paper's.

    python -m benchmarks.paper --dataset mnist --data-root DIR --seeds 0,1,2 --output DIR

Seeds run one after another in this process. `result.json` and `report.html` are written after every seed, so that a
long run that is stopped leaves what it has. A run with --validate never reads the test set.
"""
