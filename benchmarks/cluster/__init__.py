"""What more than one machine costs and brings: followers, a journal in PostgreSQL, Ray, and a server without them.

Run `python -m benchmarks.cluster --output benchmarks/results/cluster-figures.json`.
"""
