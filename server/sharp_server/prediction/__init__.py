"""Answers: the model of one version, and the thread that computes predictions in batches.

It must never change a model, and never run torch on the event loop.
"""
