"""What is known at once: lessons and batches, taught beyond a version in a process of its own.

`Teaching` belongs to the front and owns the order; the teacher's process holds the learners and computes. Between them
go the frozen dataclasses of `protocol`, and predictors as changes of the last one (`changes`). It must never run torch
in the front, and never let a fault of the teacher reach predictions. Nothing is exported here: the teacher imports
`worker` before torch.
"""
