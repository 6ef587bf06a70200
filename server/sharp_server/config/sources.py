"""From flags, environment and a TOML file to a `ServerConfig`, remembering where each value came from.

Flags are stronger than the environment (SHARP_SECTION_NAME), which is stronger than the file, which is stronger than
the defaults. Reads only what it is given: never the process's own environment or arguments.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from sharp_server.config.model import ConfigurationError, ServerConfig, without_password

Value = str | int | float | bool


@dataclass(frozen=True)
class Option:
    """One setting, as a command line needs it."""

    name: str
    """Dotted, as in `listen.port`."""
    type: type
    default: Value
    help: str

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "SHARP_" + self.name.replace(".", "_").upper()


@dataclass(frozen=True)
class Resolved:
    """A config, and where each of its values came from."""

    config: ServerConfig
    sources: dict[str, str]
    """Dotted name to `flag`, `environment SHARP_…`, `file NAME` or `default`."""

    def rows(self) -> list[tuple[str, Value, str]]:
        """(name, value, source) of every setting, in order, to be shown: without passwords."""
        found: list[tuple[str, Value, str]] = []
        for section, cls in _sections():
            for field in dataclasses.fields(cls):
                name, value = f"{section.name}.{field.name}", getattr(getattr(self.config, section.name), field.name)
                found.append((name, without_password(value) if field.metadata["dsn"] else value, self.sources[name]))
        return found


def config_options() -> list[Option]:
    """Every setting of the server, in the order of the config's tree."""
    return [
        Option(
            f"{section.name}.{field.name}",
            get_type_hints(cls)[field.name],
            _default(field),
            str(field.metadata["help"]),
        )
        for section, cls in _sections()
        for field in dataclasses.fields(cls)
    ]


def resolve_config(
    flags: Mapping[str, str | None], environ: Mapping[str, str], toml_path: str | Path | None = None
) -> Resolved:
    """The config from all three sources; unknown names and unusable values raise ConfigurationError."""
    options = {option.name: option for option in config_options()}
    values: dict[str, Any] = {}
    sources = dict.fromkeys(options, "default")
    for name, value in (_read_toml(Path(toml_path)) if toml_path else {}).items():
        values[name] = _typed(_known(options, name, "the file"), value, f"{name} in the file")
        sources[name] = f"file {toml_path}"
    for option in options.values():
        if option.variable in environ:
            values[option.name] = _typed(option, environ[option.variable], option.variable)
            sources[option.name] = f"environment {option.variable}"
    for name, flag in flags.items():
        if flag is not None:
            values[name] = _typed(_known(options, name, "the flags"), flag, name)
            sources[name] = "flag"
    sections = {
        section.name: cls(**{k.split(".")[1]: v for k, v in values.items() if k.split(".")[0] == section.name})
        for section, cls in _sections()
    }
    return Resolved(ServerConfig(**sections), sources)


def _default(field: Any) -> Value:
    value: Value = field.default
    return value


def _sections() -> list[tuple[Any, Any]]:
    hints = get_type_hints(ServerConfig)
    return [(section, hints[section.name]) for section in dataclasses.fields(ServerConfig)]


def _known(options: Mapping[str, Option], name: str, where: str) -> Option:
    if name not in options:
        raise ConfigurationError(f"no such setting: {name!r} in {where}")
    return options[name]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read the settings in {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"cannot read the settings in {path}: {error}") from None
    flat: dict[str, Any] = {}
    for section, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigurationError(f"no such setting: {section!r} in the file")
        flat |= {f"{section}.{name}": value for name, value in table.items()}
    return flat


def _typed(option: Option, value: object, where: str) -> Value:
    """The value in the option's type; texts are read as the type is written."""
    wrong = ConfigurationError(f"{where} must be of type {option.type.__name__}, not {value!r}")
    if isinstance(value, str) and option.type is not str:
        text = value.strip().lower()
        if option.type is bool:
            if text not in ("true", "false", "1", "0", "yes", "no"):
                raise wrong
            return text in ("true", "1", "yes")
        try:
            number: Value = option.type(text.replace("_", ""))
        except ValueError:
            raise wrong from None
        return number
    if option.type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not option.type:
        raise wrong
    return value  # type: ignore[return-value]
