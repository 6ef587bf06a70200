"""What SQLite's own checks can't find: damage of its files that would otherwise pass for an earlier state.

It must never change a file that is sound.
"""
