"""Answers from memory: which class, how sure, how novel.

A predictor is immutable and safe to use from any thread; it never changes a memory.
"""
