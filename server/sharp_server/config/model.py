"""Every setting of the server: one tree of frozen dataclasses, validated on construction.

Nothing here reads flags, files or the environment: `sources.py` does, at the entry point. A setting that is wrong must
stop the server before it touches anything, with the offending value in the message.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit


class ConfigurationError(ValueError):
    """A setting of the server that cannot be used."""


def setting(default: Any, help_text: str, *, dsn: bool = False) -> Any:
    """A field with the sentence that the command line shows for it; the value of a DSN is never shown in full."""
    return field(default=default, repr=not dsn, metadata={"help": help_text, "dsn": dsn})


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ConfigurationError(f"{name} must be {wanted}, not {value!r}")


def _at_least(group: str, settings: object, least: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(math.isfinite(value) and value >= least, f"{group}.{name}", value, f"at least {least:g}")


@dataclass(frozen=True)
class ListenConfig:
    """Where the server listens."""

    host: str = setting("127.0.0.1", "Address to listen on; beyond loopback, tokens or trust.insecure are needed.")
    port: int = setting(50051, "Port of the gRPC services; 0 takes a free one.")
    port_file: str = setting("", "File to write the bound ports to, as JSON; empty: none.")

    def __post_init__(self) -> None:
        _require(bool(self.host), "listen.host", self.host, "an address")
        _require(0 <= self.port <= 65535, "listen.port", self.port, "a port, or 0")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


@dataclass(frozen=True)
class HttpConfig:
    """The HTTP port: the page, the JSON API, the Open Inference Protocol over REST, metrics and health."""

    enabled: bool = setting(True, "Whether to listen for HTTP: the page, /api, /v2, /metrics and /healthz.")
    host: str = setting("", "Address of the HTTP port; empty: as listen.host.")
    port: int = setting(9464, "Port of HTTP; 0 takes a free one.")
    connections: int = setting(256, "HTTP connections open at the same time.")
    json_bytes: int = setting(1 << 20, "Bytes of a body in JSON; other bodies have limits.message_bytes.")
    client_seconds: float = setting(
        10.0, "How long a client may take to ask, and to take the next part of an answer; bodies: at least 32 KiB/s."
    )
    cors_origins: str = setting("", "Origins whose pages may ask, as https://name, with commas between; empty: none.")

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "http.port", self.port, "a port, or 0")
        _at_least("http", self, 1, "connections")
        _at_least("http", self, 1024, "json_bytes")
        _at_least("http", self, 0.1, "client_seconds")
        for origin in self.allowed_origins:
            parts = urlsplit(origin)
            right = parts.scheme in ("http", "https") and parts.netloc and origin == f"{parts.scheme}://{parts.netloc}"
            _require(bool(right), "http.cors_origins", origin, "an origin such as https://name:port")

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """The origins, one by one."""
        return tuple(text.strip() for text in self.cors_origins.split(",") if text.strip())

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect, as far as this section says."""
        return not self.enabled or not self.host or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, for itself alone."""
    if host in ("localhost", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_objects(url: str) -> None:
    parts = urlsplit(url)
    if "@" in parts.netloc:  # not quoted: it may be a secret
        raise ConfigurationError("data.objects must not hold credentials: they come from the environment")
    if "://" in url:
        _require(parts.scheme in ("s3", "file"), "data.objects", url, "s3://BUCKET/PREFIX, file:///PATH or a path")
        _require(
            bool(parts.netloc) == (parts.scheme == "s3"), "data.objects", url, "s3://BUCKET/PREFIX or file:///PATH"
        )
        _require(not parts.query and not parts.fragment, "data.objects", url, "without a query or a fragment")


@dataclass(frozen=True)
class DataConfig:
    """What is kept on disk, and where."""

    folder: str = setting("sharp-data", "Folder of the journal and the snapshots; one server at a time.")
    store: str = setting(
        "", "Database of the journal, as postgresql://user:password@host/name; empty: a file in the folder.", dsn=True
    )
    weights_folder: str = setting("", "Folder of weights that learners may name, besides those that clients bring.")
    automatic_snapshots: int = setting(5, "Automatic snapshots kept per learner.")
    objects: str = setting(
        "", "Where versions are kept beyond this machine: s3://BUCKET/PREFIX, or a shared folder; empty: nowhere."
    )
    objects_seconds: float = setting(60.0, "How long one call of the object store may take, a whole file included.")
    objects_grace_seconds: float = setting(3600.0, "Age from which objects that nothing refers to are deleted.")
    cache_bytes: int = setting(
        0, "Bytes of snapshots kept here that the object store has too, beside those that serve; 0: no bound."
    )

    def __post_init__(self) -> None:
        _require(bool(self.folder), "data.folder", self.folder, "a folder")
        if self.store and not self.store.startswith(("postgresql://", "postgres://")):
            raise ConfigurationError("data.store must begin with postgresql://")  # its value may hold a password
        _at_least("data", self, 1, "automatic_snapshots")
        _at_least("data", self, 0.1, "objects_seconds")
        _at_least("data", self, 0, "objects_grace_seconds", "cache_bytes")
        _check_objects(self.objects)
        _require(not self.cache_bytes or bool(self.objects), "data.cache_bytes", self.cache_bytes, "used with objects")

    @property
    def path(self) -> Path:
        """The data folder."""
        return Path(self.folder)


def without_password(dsn: str) -> str:
    """A DSN as it may be shown."""
    parts = urlsplit(dsn)
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        netloc = user.partition(":")[0] + (":…" if ":" in user else "") + "@" + host
    query = "&".join(
        "password=…" if item.partition("=")[0] in ("password", "sslpassword") else item
        for item in parts.query.split("&")
    )
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


@dataclass(frozen=True)
class TrustConfig:
    """Who may connect."""

    certificate: str = setting("", "PEM file of the server's certificate chain; empty: no TLS.")
    key: str = setting("", "PEM file of the certificate's private key.")
    client_ca: str = setting("", "PEM file of the CA that client certificates must be from (mutual TLS); empty: none.")
    token_file: str = setting("", "File of bearer tokens by role (see SECURITY.md); empty: no token is asked for.")
    insecure: bool = setting(False, "Whether to listen beyond loopback without tokens.")

    def __post_init__(self) -> None:
        _require(bool(self.certificate) == bool(self.key), "trust.key", self.key, "given together with certificate")
        _require(not self.client_ca or bool(self.certificate), "trust.client_ca", self.client_ca, "used with TLS")


@dataclass(frozen=True)
class LimitsConfig:
    """What one client, stream or learner may take of the server."""

    message_bytes: int = setting(64 << 20, "Bytes of one message.")
    batch_examples: int = setting(8192, "Examples of one batch or prediction.")
    lesson_examples: int = setting(1024, "Examples of one lesson (Teach).")
    unlearned_bytes: int = setting(1 << 30, "Bytes taken and not yet learned, per learner.")
    learners: int = setting(100, "Learners.")
    classes: int = setting(10_000, "Classes per learner.")
    streams: int = setting(1000, "Streams open at the same time, of all kinds.")
    top_k: int = setting(100, "Best classes listed per example.")
    nearest_memories: int = setting(100, "Nearest memories listed per example.")
    image_pixels: int = setting(1 << 24, "Pixels of one encoded image.")
    example_values: int = setting(1 << 20, "Numbers of one example.")
    snapshot_bytes: int = setting(4 << 30, "Bytes of an imported snapshot.")
    weights_bytes: int = setting(4 << 30, "Bytes of all weights that clients bring.")
    manual_snapshots: int = setting(100, "Requested and imported snapshots per learner.")
    version_wait_seconds: float = setting(60.0, "How long a call without a deadline waits for a version.")

    def __post_init__(self) -> None:
        _at_least("limits", self, 4 << 20, "message_bytes")
        _at_least("limits", self, 1024, "batch_examples")
        _at_least("limits", self, 1, "lesson_examples")
        _at_least("limits", self, 1, "unlearned_bytes", "learners", "classes", "streams", "top_k", "nearest_memories")
        _at_least("limits", self, 1, "image_pixels", "example_values", "snapshot_bytes", "manual_snapshots")
        _at_least("limits", self, 0, "weights_bytes")
        _at_least("limits", self, 0, "version_wait_seconds")


@dataclass(frozen=True)
class BatchingConfig:
    """How predictions that come together are computed together."""

    max_batch_size: int = setting(256, "Examples computed at once, unless one request brings more.")
    queue_examples: int = setting(16_384, "Examples that may wait for prediction, over all learners.")

    def __post_init__(self) -> None:
        _at_least("batching", self, 1, "max_batch_size", "queue_examples")


@dataclass(frozen=True)
class TrainerConfig:
    """The process that trains."""

    threads: int = setting(1, "Threads that training computes with.")
    processes: int = setting(1, "Processes that share the shards of a learner that has some (training.shards).")
    niceness: int = setting(10, "How far training gives way to everything else, 0 to 19.")
    attempts: int = setting(3, "Failed tries after which an episode is parked.")
    watchdog_seconds: float = setting(300.0, "Without any progress for this long, training counts as hung.")
    device: str = setting("auto", "Where training computes: auto, cpu, cuda, cuda:0, mps.")
    memory_bytes: int = setting(0, "Most bytes of address space of the training process; 0: no bound.")
    slices: bool = setting(True, "Whether learners take turns after each phase; else after each episode.")
    suspended_learners: int = setting(8, "Learners between two slices that the trainer keeps in memory, at most.")
    suspended_bytes: int = setting(1 << 30, "Bytes that these may take; others go on from their last phase's file.")
    retry_seconds: float = setting(
        1.0, "Pause before a failed try is repeated, and before a dead trainer is restarted."
    )

    def __post_init__(self) -> None:
        _at_least("trainer", self, 1, "threads", "processes", "attempts")
        _require(0 <= self.niceness <= 19, "trainer.niceness", self.niceness, "0 to 19")
        _at_least("trainer", self, 0, "memory_bytes", "suspended_learners", "suspended_bytes", "retry_seconds")
        _require(self.watchdog_seconds > 0, "trainer.watchdog_seconds", self.watchdog_seconds, "positive")


@dataclass(frozen=True)
class QualityConfig:
    """What is reported of how good versions are."""

    fall_points: float = setting(5.0, "A class that lost more points than this, and not by chance, is warned about.")
    versions: int = setting(100, "Newest versions per learner whose figures are kept.")
    metric_classes: int = setting(20, "Classes per learner, worst first, with an accuracy of their own in the metrics.")

    def __post_init__(self) -> None:
        _require(0 <= self.fall_points <= 100, "quality.fall_points", self.fall_points, "0 to 100")
        _at_least("quality", self, 2, "versions")
        _at_least("quality", self, 0, "metric_classes")


@dataclass(frozen=True)
class PredictorConfig:
    """Where predictions are computed."""

    threads: int = setting(1, "Threads that one prediction computes with.")
    niceness: int = setting(
        5, "How far computing predictions gives way to taking requests in, 0 to 19: they gather meanwhile. Linux only."
    )
    device: str = setting("auto", "Where predictions compute: auto, cpu, cuda, cuda:0, mps.")

    def __post_init__(self) -> None:
        _at_least("predictor", self, 1, "threads")
        _require(0 <= self.niceness <= 19, "predictor.niceness", self.niceness, "0 to 19")


@dataclass(frozen=True)
class TeachingConfig:
    """What is known at once: lessons, and batches before their episode is learned."""

    niceness: int = setting(10, "How far teaching gives way to predictions, 0 to 19. Linux only.")
    version_seconds: float = setting(30.0, "Lessons become part of a version after this time, where no episode waits.")
    version_lessons: int = setting(2000, "… and at the latest when they are so many.")
    idle_learners: int = setting(8, "Learners kept in memory to be taught though nothing was taught to them of late.")
    watchdog_seconds: float = setting(60.0, "Without any answer for this long, the teacher counts as hung.")

    def __post_init__(self) -> None:
        _require(0 <= self.niceness <= 19, "teaching.niceness", self.niceness, "0 to 19")
        _require(self.watchdog_seconds > 0, "teaching.watchdog_seconds", self.watchdog_seconds, "positive")
        _at_least("teaching", self, 0, "version_seconds", "idle_learners")
        _at_least("teaching", self, 1, "version_lessons")


@dataclass(frozen=True)
class ClusterConfig:
    """Several servers on one store: who this one is, and how far learners are spread (docs/cluster.md)."""

    ray: str = setting("", "Ray cluster to serve on: auto or its address (--cluster); empty: serve here alone.")
    node: str = setting("", "Name of this server in its cluster, unlike any other's; empty: it is in none.")
    advertise: str = setting("", "Host at which other servers and clients reach this one; empty: listen.host.")
    replicas: int = setting(1, "Servers besides the owner that answer predictions of a learner.")
    replicas_of: str = setting("", "The same for single learners, as name=2,other=0.")
    ca: str = setting("", "PEM file of the CA that the servers' own certificates are from; empty: the system's.")

    def __post_init__(self) -> None:
        _at_least("cluster", self, 0, "replicas")
        for part in filter(None, self.replicas_of.split(",")):
            name, _, count = part.partition("=")
            right = bool(name.strip()) and count.strip().isdecimal()
            _require(right, "cluster.replicas_of", part, "name=number, with commas between")

    def replicas_for(self, name: str) -> int:
        """Servers besides the owner that answer predictions of the learner of that name."""
        chosen = dict(part.partition("=")[::2] for part in self.replicas_of.split(",") if part)
        found = {key.strip(): int(value) for key, value in chosen.items()}
        return found.get(name, self.replicas)


@dataclass(frozen=True)
class StopConfig:
    """How the server ends."""

    grace_seconds: float = setting(20.0, "How long calls under way may take to finish after SIGTERM.")

    def __post_init__(self) -> None:
        _at_least("stop", self, 0, "grace_seconds")


@dataclass(frozen=True)
class LogConfig:
    """What is logged, and how."""

    format: str = setting("human", "human or json; one line per event either way.")
    level: str = setting("info", "debug, info, warning or error.")

    def __post_init__(self) -> None:
        _require(self.format in ("human", "json"), "log.format", self.format, "human or json")
        _require(self.level in ("debug", "info", "warning", "error"), "log.level", self.level, "a level")


@dataclass(frozen=True)
class ServerConfig:
    """Everything that a server is started with."""

    listen: ListenConfig = field(default_factory=ListenConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    data: DataConfig = field(default_factory=DataConfig)
    trust: TrustConfig = field(default_factory=TrustConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    teaching: TeachingConfig = field(default_factory=TeachingConfig)
    quality: QualityConfig = field(default_factory=QualityConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        if self.cluster.node and not (self.data.store and self.data.objects):
            raise ConfigurationError("servers of a cluster share a journal and versions: give data.store, data.objects")
        if self.trust.token_file or self.trust.insecure or (self.listen.loopback and self.http.loopback):
            return
        host = self.http.host if self.listen.loopback else self.listen.host
        raise ConfigurationError(
            f"listening on {host} lets others in: name a file of tokens, one role:token per line, with "
            "trust.token_file (SHARP_TRUST_TOKEN_FILE), or let everybody in with trust.insecure "
            "(SHARP_TRUST_INSECURE=true)"
        )
