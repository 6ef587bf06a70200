"""Answers: the model of one version, its summary, and the thread that computes predictions in batches.

A request alone waits for nobody, and every request is answered wholly by one version. It must never change a model, and
never run torch on the event loop.
"""
