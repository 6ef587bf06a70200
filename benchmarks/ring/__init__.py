"""The ring: our learner beside every rival of the paper and what a user would pick instead, on the same stream.

    python -m benchmarks.ring --dataset mnist --data-root DIR [--only icarl,ours] [--seeds 0,1,2] [--fraction 0.1]

One contestant with one seed is one process: it reads a task and a stream from files, learns episode by episode, answers
for the test examples, whose labels it never sees, and leaves its answers in a file (`protocol`). So its processor time
and memory are its own, and rivals may live in an environment of their own (`environment`). What is finished is not run
again. Nothing here may tune a contestant: settings are those of the paper's comparison, or the method's own.
"""
