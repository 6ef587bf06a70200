"""A real PostgreSQL for tests: one server per worker, started when first needed; one database per folder."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from devtools.postgres_process import PostgresProcess


@functools.cache
def postgres() -> PostgresProcess:
    """The server of this worker; it ends with the worker."""
    server = PostgresProcess().start()
    server.configure("fsync", "off")  # a killed process loses nothing by that, and no test cuts the power
    return server


def database_of(folder: Path) -> str:
    """The DSN of a database that belongs to a folder; made when first asked for."""
    return postgres().database("t" + hashlib.sha256(str(folder).encode()).hexdigest()[:24])
