"""The crash loop: a server, its trainer and its clients' connections are killed again and again while it learns.

A producer streams numbered batches and an app predicts, both with the real client, while something is killed at random
moments. In the end nothing acknowledged may be missing, nothing may have been learned twice, and the learner must be,
bit for bit, what it would have been without a single kill.
"""
