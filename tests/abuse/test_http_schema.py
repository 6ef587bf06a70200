"""Requests made up from the description of the HTTP routes; `python -m reliability.http` makes many more of them."""

from __future__ import annotations

from pathlib import Path

from devtools.server_process import ONE_THREAD, ServerProcess
from reliability.http import SETTINGS, attack, plant, unharmed


def test_no_answer_is_a_fault_or_one_that_the_description_does_not_allow(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, SETTINGS, environment=ONE_THREAD).start() as server:
        plant(server)
        address = f"http://127.0.0.1:{server.http_port}"
        report = attack(address, examples=3)
        assert not report.failures and unharmed(address)
        assert "incident" not in server.log.read_text()
        asked = {name for name, _ in report.statuses}
        assert len(asked) >= 25 and any(status == 200 for _, status in report.statuses)
