"""Training: a process of its own, the scheduler that gives it episodes, and the publisher of what it made.

Between the processes go the frozen dataclasses of `protocol`, and files. It must never let a fault of training reach
predictions, and never try an episode without end. Nothing is exported here: the trainer imports `worker` before torch.
"""
