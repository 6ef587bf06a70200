"""The journal in PostgreSQL: tables, statements, one writer per server, `PostgresStorage` and `PostgresBoard`.

A commit is on PostgreSQL's disk when it returns, and raw examples are in tables of their own that are dropped. It must
never write to a learner that another server owns, and never be imported by anything but a composition root: the
interfaces are `storage.interface` and `storage.board`.
"""
