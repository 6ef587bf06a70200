"""Attacks on one method, or with one kind of file: hypothesis makes up what is sent, every answer is judged.

Hypothesis makes a message that broke something as small as it can before it is reported.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from reliability.fuzz import pictures, seeds, snapshots
from reliability.fuzz.answers import PATIENCE, SECONDS, WAIT, Violation, call, judge
from reliability.fuzz.fuzz_target import FuzzTarget
from reliability.fuzz.messages import Draw, Vocabulary, requests
from reliability.fuzz.methods import Method
from reliability.fuzz.pauses import Pauses
from sharp.v1 import learning_pb2, prediction_pb2, tensor_pb2
from sharp.v1 import snapshot_pb2 as snap
from sharp_client import InvalidArgumentError, PreconditionError

LARGEST = 7 << 20
"""Bytes of one message; longer ones would be gRPC's to refuse."""
_LONGEST_STREAM = 6
_CHUNK = 1 << 20
_AWAITED = frozenset({"min_model_version", "min_examples"})
"""Fields of a request to predict that make it wait."""


@dataclass
class Tally:
    """What was sent and what came back."""

    calls: int = 0
    messages: int = 0
    codes: Counter[str] = field(default_factory=Counter)


@dataclass
class Attacker:
    """Sends and judges; keeps count of everything."""

    target: FuzzTarget
    tallies: dict[str, Tally] = field(default_factory=dict)
    violations: list[dict[str, str]] = field(default_factory=list)
    pauses: Pauses = field(default_factory=Pauses)

    @property
    def messages(self) -> int:
        """Messages sent so far."""
        return sum(tally.messages for tally in self.tallies.values())

    # ---- messages ---------------------------------------------------------------------------------------------------

    def ask(self, method: Method, examples: int, seed: int) -> None:
        """So many calls of one method."""
        words = Vocabulary((seeds.VICTIM, "fresh", "taken-in", self.target.snapshot), (self.target.parts.content,))
        message = requests(method.request, seeds.seeds_of(method, self.target.snapshot), words, LARGEST)
        sent = st.lists(message, min_size=1, max_size=_LONGEST_STREAM) if method.takes_stream else message.map(_alone)
        if method.path == "/sharp.v1.Learning/Learn":
            sent = st.one_of(sent, _lessons(message))

        def once(data: tuple[list[bytes], int]) -> None:
            self.send(method.path, method, data[0], cancel=data[1] == 0)

        explore(once, st.tuples(sent, st.integers(0, 9)), examples, seed)

    def show_pictures(self, examples: int, seed: int) -> None:
        """So many hostile images, to be predicted."""
        method = self._method("/sharp.v1.Prediction/Predict")

        def once(files: list[bytes]) -> None:
            images = tensor_pb2.EncodedImages(images=files, resize=True)
            request = prediction_pb2.PredictRequest(learner="pictures", inputs=tensor_pb2.Inputs(images=images))
            self.send("images", method, [request.SerializeToString()])

        explore(once, st.lists(pictures.images(), min_size=1, max_size=3), examples, seed)

    def offer_snapshots(self, examples: int, seed: int) -> None:
        """So many hostile files, to be taken in."""
        explore(self.offer, snapshots.files(self.target.parts), examples, seed)

    def offer(self, file: bytes) -> str:
        """One file, to be taken in as a new learner, which is deleted again if that works; returns the code."""
        method = self._method("/sharp.v1.Admin/ImportSnapshot")
        digest = hashlib.sha256(file).digest()
        header = snap.ImportHeader(learner="taken-in", size_bytes=len(file), sha256=digest, restore=True)
        parts = [snap.ImportSnapshotRequest(header=header)]
        parts += [snap.ImportSnapshotRequest(chunk=file[i : i + _CHUNK]) for i in range(0, len(file), _CHUNK)]
        code = self.send("snapshot files", method, [part.SerializeToString() for part in parts])
        if code == "OK":
            with contextlib.suppress(
                PreconditionError, InvalidArgumentError
            ):  # it may be of nothing, or of other shape
                self.target.client.predict("taken-in", seeds.examples(2))
            self.target.client.delete_learner("taken-in")
        return code

    # ---- one call ---------------------------------------------------------------------------------------------------

    def _method(self, path: str) -> Method:
        return next(method for method in self.target.methods if method.path == path)

    def send(self, name: str, method: Method, sent: list[bytes], cancel: bool = False) -> str:
        """Call a method, count it under a name, judge the answer; returns its code."""
        tally = self.tallies.setdefault(name, Tally())
        may_wait = _waits(method, sent[0])
        seconds = PATIENCE if method.gives_stream else WAIT if may_wait else SECONDS
        paused = self.pauses.count
        answer = call(method, self.target.channel, sent, seconds, cancel)
        tally.calls += 1
        tally.messages += len(sent)
        tally.codes["gave up" if answer.gave_up else answer.code.name] += 1
        try:
            judge(method, answer, self.target.secret, may_wait)
        except Violation as violation:
            if self.target.alive and self.pauses.since(paused):
                return self.send(name, method, sent, cancel)
            shown = " ".join(part[:200].hex() for part in sent)
            self.violations.append({"what": name, "found": str(violation), "sent": shown[:2000]})
            raise
        return answer.code.name


@st.composite
def _lessons(draw: Draw, hostile: st.SearchStrategy[bytes]) -> list[bytes]:
    """A good stream of its own id, up to a message somewhere that is something else; or to its end."""
    opening = learning_pb2.Open(
        learner=draw(st.sampled_from((seeds.VICTIM, seeds.VICTIM, "fresh"))),
        stream_id=f"lesson-{draw(st.integers(0, 2**40))}",
        boundaries=draw(st.sampled_from((0, 1, 2))),
        create_if_missing=True,
    )
    end = learning_pb2.LearnRequest(end_episode=learning_pb2.EndEpisode(sequence=3))
    good = [learning_pb2.LearnRequest(open=opening), seeds.batch(1), seeds.batch(2), end, seeds.batch(4)]
    sent = [message.SerializeToString() for message in good]
    place = draw(st.integers(1, len(sent)))
    return sent if place == len(sent) else [*sent[:place], draw(hostile), *sent[place + 1 :]]


def _alone(message: bytes) -> list[bytes]:
    return [message]


def _waits(method: Method, data: bytes) -> bool:
    """Whether the answer may take as long as the caller lets it: a version or examples that may never come."""
    if _AWAITED.isdisjoint(method.request.fields_by_name):
        return False
    try:
        message: Any = GetMessageClass(method.request).FromString(data)
    except DecodeError:
        return False
    return any(getattr(message, name) for name in _AWAITED)


def explore(once: Callable[[Any], object], strategy: st.SearchStrategy[Any], examples: int, seed: int) -> None:
    """Call `once` with so many made-up values; a failure is made small, then raised."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def run(value: Any) -> None:
        once(value)

    run()
