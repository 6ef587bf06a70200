"""What a learner remembers: short-term memory for replay, long-term memory for answers.

Memories are values: every change gives a new one, so whoever reads an old one is never disturbed. Nothing here keeps an
example as it came, but features of some; the features of a vector are the vector, scaled.
"""
