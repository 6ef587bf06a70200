"""What a learner remembers: short-term memory for replay, long-term memory for answers.

Memories are values: every change gives a new one, so whoever reads an old one is never disturbed. Nothing here keeps a
raw example.
"""
