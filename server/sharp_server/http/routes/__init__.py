"""The routes, a module for each thought. Each takes what it uses, and gives routers that the guard made.

A route checks what the framework can't, calls one operation and builds the answer. It must never keep anything.
"""
