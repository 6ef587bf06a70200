"""Settings: where they come from, which source is stronger, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sharp_server import ConfigurationError, config_options, resolve_config
from tests.server.running import SECONDS, Server


def test_flags_are_stronger_than_the_environment_and_that_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sharp.toml"
    file.write_text("[listen]\nport = 1111\n[http]\nport = 1112\n[trainer]\nthreads = 3\n")
    environ = {"SHARP_LISTEN_PORT": "2222", "SHARP_HTTP_PORT": "2223"}
    resolved = resolve_config({"listen.port": "3333"}, environ, file)
    assert resolved.config.listen.port == 3333
    assert resolved.config.http.port == 2223
    assert resolved.config.trainer.threads == 3
    assert resolved.sources["listen.port"] == "flag"
    assert resolved.sources["http.port"] == "environment SHARP_HTTP_PORT"
    assert resolved.sources["trainer.threads"] == f"file {file}"
    assert resolved.sources["log.level"] == "default"


def test_every_option_has_a_type_a_default_and_a_sentence_of_help() -> None:
    options = config_options()
    assert len({option.name for option in options}) == len(options) > 30
    for option in options:
        assert type(option.default) is option.type
        assert option.help.endswith(".")
    assert [row[0] for row in resolve_config({}, {}).rows()] == [option.name for option in options]


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"listen.prot": "1"}, "listen.prot"),
        ({"listen.port": "seventy"}, "seventy"),
        ({"listen.port": "70000"}, "70000"),
        ({"trust.insecure": "perhaps"}, "perhaps"),
        ({"trainer.niceness": "30"}, "30"),
        ({"listen.host": "0.0.0.0"}, "0.0.0.0"),
        ({"trust.certificate": "a.pem"}, "trust.key"),
        ({"log.format": "xml"}, "xml"),
        ({"data.store": "mysql://host/name"}, "data.store"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_with_its_value(flags: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word.replace(".", r"\.")):
        resolve_config(flags, {})


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://sharp:very-secret@host:5432/name?sslmode=require",
        "postgresql://host/name?user=sharp&password=very-secret",
        "postgresql://sharp:very-secret@one,two/name",
    ],
)
def test_the_password_of_a_database_is_used_and_never_shown(dsn: str) -> None:
    resolved = resolve_config({"data.store": dsn}, {})
    assert resolved.config.data.store == dsn
    shown = dict((name, value) for name, value, _ in resolved.rows())["data.store"]
    assert "very-secret" not in f"{shown}{resolved.config!r}" and "sharp" in str(shown) and "name" in str(shown)
    with pytest.raises(ConfigurationError) as caught:
        resolve_config({"data.store": dsn.replace("postgresql", "mysql")}, {})
    assert "very-secret" not in str(caught.value)


def test_listening_beyond_loopback_needs_tokens_or_an_explicit_word() -> None:
    assert resolve_config({"listen.host": "0.0.0.0", "trust.insecure": "true"}, {}).config.trust.insecure
    assert resolve_config({"listen.host": "0.0.0.0", "trust.token_file": "t"}, {}).config.trust.token_file == "t"
    assert resolve_config({"listen.host": "::1"}, {}).config.listen.loopback


def test_a_file_with_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sharp.toml"
    file.write_text("[listen]\nports = 1\n")
    with pytest.raises(ConfigurationError, match=r"listen\.ports"):
        resolve_config({}, {}, file)


def test_a_second_server_on_the_folder_or_the_port_fails_loudly(lend: Callable[..., Server], tmp_path: Path) -> None:
    first = lend()
    same_folder = Server(tmp_path / "two")
    same_folder.settings["data.folder"] = first.settings["data.folder"]
    same_port = Server(tmp_path / "three", listen__port=first.port)
    for server in (same_folder, same_port):
        server.start(wait=False)
    for server, words in ((same_folder, "another server has the data folder"), (same_port, "cannot listen on")):
        assert server.process.wait(SECONDS) == 1
        assert words in server.log.read_text()
        assert "Traceback" not in server.log.read_text()
    assert f"serves on 127.0.0.1:{first.port}" in first.log.read_text()


def test_a_device_that_is_not_there_stops_the_server_before_it_looks_at_its_data(tmp_path: Path) -> None:
    server = Server(tmp_path, predictor__device="cuda:99").start(wait=False)
    assert server.process.wait(60) == 1
    assert "predictor.device: device 'cuda:99' cannot be used" in server.log.read_text()
    assert not (tmp_path / "data" / "journal.db").exists()
