"""What a learner is, and what changes it: episodes, lessons, classes that go or become one.

Every change completes, or raises and leaves the learner as it was. How examples become weights and memories is the work
of the rooms below.
"""
