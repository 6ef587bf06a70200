"""The journal in SQLite: tables, statements, one writer thread, and `SqliteStorage` over them.

A commit is on disk when it returns, and what is deleted is overwritten. It must never be imported by anything but the
composition root: the interface is `storage.interface`.
"""
