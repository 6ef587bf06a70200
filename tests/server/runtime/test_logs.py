"""Logs: one line per event, for people and for programs."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from sharp_server.runtime.logs import HumanFormatter, JsonFormatter


def record(message: str, *args: object) -> logging.LogRecord:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        return logging.LogRecord("sharp_server.front", logging.ERROR, "front.py", 1, message, args, sys.exc_info())


@pytest.mark.parametrize("formatter", [HumanFormatter(), JsonFormatter()])
def test_an_event_is_one_line_even_with_line_breaks_and_a_traceback(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%s failed\nbadly", "it"))
    assert "\n" not in line and "failed" in line and "ValueError: two" in line


def test_a_line_for_programs_has_time_level_logger_message_and_exception() -> None:
    entry = json.loads(JsonFormatter().format(record("größer als %d", 3)))
    assert set(entry) == {"time", "level", "logger", "message", "exception"}
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "sharp_server.front", "größer als 3")


def test_a_line_for_people_says_when_how_bad_and_where() -> None:
    line = HumanFormatter().format(record("lost"))
    day, _, rest = line.partition(" ")
    assert day.count("-") == 2 and rest[9:].startswith("error   front: lost")
