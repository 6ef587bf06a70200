"""A real S3-compatible server on loopback: moto's, as a process on a port of the system's choice."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

BUCKET = "versions"
_SECONDS = 120.0
_PROGRAM = "from moto.server import main; main()"


class BucketServer:
    """The server, and one bucket in it. It forgets all objects when it ends."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._log = folder / "bucket.log"
        command = [sys.executable, "-c", _PROGRAM, "-H", "127.0.0.1", "-p", str(port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.port = self._wait()
        self.create()

    def _wait(self) -> int:
        deadline = time.monotonic() + _SECONDS
        while (found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", self._log.read_text())) is None:
            assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)
        return int(found[1])

    def create(self) -> None:
        """Make the bucket."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=_SECONDS).close()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a client of it has in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": "an-id",
            "AWS_SECRET_ACCESS_KEY": "a-very-secret-key",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def stop(self) -> None:
        """End it: from then on nobody answers."""
        self._process.kill()
        self._process.wait(_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
