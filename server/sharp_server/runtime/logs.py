"""Logging: one line per event, for people or as JSON. Never an example's values, never a token."""

from __future__ import annotations

import json
import logging
import sys
import time

from sharp_server.config.model import LogConfig


class HumanFormatter(logging.Formatter):
    """`time level logger: message`, with line breaks folded so that an event stays one line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        where = record.name.removeprefix("sharp_server.")
        text = f"{stamp} {record.levelname.lower():7} {where}: {record.getMessage()}"
        if record.exc_info:
            text += " | " + self.formatException(record.exc_info)
        return text.replace("\n", " ⏎ ")


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up(config: LogConfig) -> None:
    """Send all logging of this process to stderr in the chosen form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else HumanFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())
    logging.getLogger("sharp_engine.network.architecture").setLevel(logging.WARNING)  # it speaks on every load
    logging.getLogger("asyncio").setLevel(logging.WARNING)
