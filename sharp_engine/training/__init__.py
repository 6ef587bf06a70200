"""Learning an episode: phases of rewiring and gradient steps, then consolidation into the memories.

It works on copies and returns new state; a learner is never left half-changed.
"""
