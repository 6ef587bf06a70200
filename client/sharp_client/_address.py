"""Where a server is: from what people type to what gRPC takes, or words that say what is wrong with it.

localhost               localhost:50051
10.0.0.7:6000           as it is
::1                     [::1]:50051
http://host:6000/       host:6000, without TLS
https://host            host:50051, with TLS
unix:/run/sharp.sock    as it is, like every other scheme of gRPC's own
"""

from __future__ import annotations

from dataclasses import dataclass

PORT = 50051
"""The port of a server that was not given another."""

_OWN_SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:", "xds:", "passthrough:")


@dataclass(frozen=True)
class Address:
    """A server's address."""

    target: str
    """For gRPC."""
    tls: bool = False
    """Whether it asks for TLS by itself."""


def read_address(text: str) -> Address:
    """Read an address, or raise ValueError.

    >>> read_address("localhost")
    Address(target='localhost:50051', tls=False)
    >>> read_address("https://example.org:6000")
    Address(target='example.org:6000', tls=True)
    >>> read_address("http://localhost:50051/metrics")
    Traceback (most recent call last):
    ValueError: 'http://localhost:50051/metrics' is no address of a server: give host:port, without '/metrics'
    """
    given = text.strip()
    if given.startswith(_OWN_SCHEMES):
        return Address(given)
    scheme, separator, rest = given.partition("://")
    if not separator:
        scheme, rest = "", given
    if scheme not in ("", "http", "https", "grpc", "grpcs"):
        raise _wrong(text, f"not {scheme}://")
    place, slash, path = rest.partition("/")
    if path.strip("/"):
        raise _wrong(text, f"without {slash + path!r}")
    return Address(_with_port(place, text), scheme in ("https", "grpcs"))


def _with_port(place: str, text: str) -> str:
    if place.startswith("["):  # IPv6 in brackets
        host, bracket, port = place.partition("]")
        host, port = host + bracket, port.removeprefix(":")
    elif place.count(":") > 1:  # IPv6 without
        host, port = f"[{place}]", ""
    else:
        host, _, port = place.partition(":")
    if not host.strip("[]") or any(letter.isspace() or letter in "@?#" for letter in place):
        raise _wrong(text, "such as localhost:50051")
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise _wrong(text, "a port is a number from 1 to 65535")
    return f"{host}:{port or PORT}"


def _wrong(text: str, how: str) -> ValueError:
    return ValueError(f"{text!r} is no address of a server: give host:port, {how}")
