"""More than one machine: who owns which learner, calls that find their owner, servers that follow learners of others.

PostgreSQL says who may write (an epoch per learner), a coordinator who should, Ray places and restarts. Nothing of this
is imported unless a server is part of a cluster, and nothing here may decide what is durable: that is the storage's.
"""
