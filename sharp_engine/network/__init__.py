"""The network: layers of ranked units, how they are wired, and what stands before them.

It computes and is rewired; it never trains by itself, holds no memory of examples and knows no labels.
"""
