"""Tools that tests, benchmarks, reliability runs and the demo share: real server processes and what they cost.

Not part of the installed package, and nothing that is installed may import it.
"""
