"""The journal in PostgreSQL: tables, statements, one writer per server, and `PostgresStorage` over them.

A commit is on PostgreSQL's disk when it returns, and raw examples are in tables of their own that are dropped. It must
never write to a learner that another server owns, and never be imported by anything but the composition root: the
interface is `storage.interface`.
"""
