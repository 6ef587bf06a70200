"""The journal in SQLite: tables, statements, one writer thread.

It must never be imported by anything but the composition root and the worker; the interface is `storage.interface`.
"""
