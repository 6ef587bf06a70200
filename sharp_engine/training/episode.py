"""Learning one episode: phases of rewiring and training, then consolidation into the network's two memories.

Everything here works on copies and returns new state, so that whatever happens in between (cancellation, a non-finite
loss, a crash) the learner is as it was at the end of the last phase.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sharp_engine.config import LearnerConfig, MemoryConfig, TrainingConfig
from sharp_engine.device import upload
from sharp_engine.errors import NonFiniteLossError, SilentNetworkError
from sharp_engine.labels import Labels
from sharp_engine.memory.long_term import ClassMemory, LongTermMemory, remember
from sharp_engine.memory.packing import pack
from sharp_engine.memory.short_term import Replay, ShortTermMemory, StoredClass
from sharp_engine.network.compact import CompactNetwork, active_subnetwork
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.rewiring import promote, reinitialise_idle, rewire, total_activations
from sharp_engine.network.state import Network
from sharp_engine.prediction import novelty
from sharp_engine.prediction.vote import VotePredictor
from sharp_engine.training.knowledge import Knowledge
from sharp_engine.training.loss import reduce_anchor_losses, supervised_contrastive_loss
from sharp_engine.training.optimiser import Adadelta
from sharp_engine.training.phase import FrozenOutputs, LiveNetwork
from sharp_engine.training.progress import Reporter
from sharp_engine.training.sharding import ShardGroup, sharded_loss

_CHUNK = 128
"""Examples per forward outside of training: small ones stay near the processor."""

_LEAST_FOR_HOLDOUT = 20
"""A class with fewer examples gives none away for calibration."""


@dataclass
class Examples:
    """An episode's examples on the learner's device."""

    x: Tensor
    """(n, *input shape), as they came."""
    y: Tensor
    """(n,) class ids."""

    def as_floats(self) -> Examples:
        """The same examples with bytes scaled to [0, 1], to stand beside others that came as floats."""
        return Examples(self.x.float().div(255.0) if self.x.dtype == torch.uint8 else self.x, self.y)

    def fingerprint(self) -> str:
        """SHA-256 of values and classes: the same examples in the same order, or not."""
        digest = hashlib.sha256()
        for tensor in (self.x, self.y):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass
class RunningEpisode:
    """An episode that is being learned, as it stands at the end of a phase."""

    number: int
    examples: Examples | None
    """Absent after loading a snapshot without them: they must be given again."""
    fingerprint: str
    heldout: Tensor
    """(h,) indices of examples kept out of training."""
    before: Network
    """The network as it was when the episode began: what predictions use, and what abandoning goes back to."""
    random_before: Tensor
    """State of the random numbers when the episode began."""
    trains: bool = True
    """Whether the network learns it: not if it is too thin, or if the network rests."""
    knowledge: Knowledge | None = None
    """With a learned metric: what is known with this episode; made again after loading a snapshot."""
    outdated: bool = False
    """Whether something was taught or forgotten since `knowledge` was made. It answers with that all the same, but is
    made again when the episode goes on, as in a learner that was saved and loaded."""
    features: Tensor | None = None
    """With a learned metric: stable features of all examples, (n, features), for as long as the episode runs."""
    losses: list[float] = field(default_factory=list)
    """Mean loss of each finished phase."""
    seconds: float = 0.0
    trainer: EpisodeTrainer | None = None
    """What runs its phases, with all that is computed once per episode; made again after loading a snapshot."""

    @property
    def phases_done(self) -> int:
        """How many phases are finished."""
        return len(self.losses)


def hold_out(y: Tensor, share: float, most: int, generator: torch.Generator) -> Tensor:
    """Indices of a share of each class's examples, at most so many."""
    chosen = []
    for class_id in y.unique() if share > 0 else ():
        members = torch.nonzero(y == class_id).squeeze(1)
        if len(members) >= _LEAST_FOR_HOLDOUT:
            count = min(round(share * len(members)), most)
            chosen.append(members[torch.randperm(len(members), generator=generator)[:count]])
    return torch.cat(chosen).sort().values if chosen else torch.zeros(0, dtype=torch.int64)


class EpisodeTrainer:
    """Runs the phases of one episode. Holds what stays the same over them: features, replay, frozen activations."""

    def __init__(
        self,
        preprocessor: Preprocessor,
        config: LearnerConfig,
        examples: Examples,
        heldout: Tensor,
        network: Network,
        stm: ShortTermMemory,
        features: Tensor | None = None,
    ) -> None:
        """`features`: what the first layer sees of all examples, where it is known already."""
        device = network.device
        kept = torch.ones(len(examples.y), dtype=torch.bool)
        kept[heldout] = False
        self.y = upload(examples.y[kept], device)  # (n,)
        self._preprocessor = preprocessor
        self._computed = features is not None or preprocessor.backbone is not None  # it never changes for an example
        if features is not None:
            self.x = features[upload(torch.nonzero(kept).squeeze(1), features.device)]  # (n, *feature shape)
        else:
            self.x = upload(examples.x[kept], device)  # (n, *input shape)
            if preprocessor.backbone is not None:
                self.x = torch.cat([preprocessor(part) for part in self.x.split(_CHUNK)])
        self.config = config
        self._replay = Replay(stm, device) if stm.classes else None
        self._frozen = FrozenOutputs(
            network, self.features, len(self.y), self._replay, config.training.cache_mebibytes * 2**20
        )

    def features(self, index: Tensor) -> Tensor:
        """What the first layer sees of some examples."""
        x = self.x[index]
        return x if self._computed else self._preprocessor(x)

    def epochs(self, training: TrainingConfig) -> tuple[int, int]:
        """Epochs of a phase, and steps of an epoch."""
        steps = -(-len(self.y) // training.batch_size)
        return max(training.epochs, -(-training.min_steps // steps)), steps

    def rewire(self, network: Network, phase: int, generator: torch.Generator) -> None:
        """Steps 1 to 4: select units by their activation on some examples, drop and grow connections."""
        training = self.config.training
        sample = torch.randperm(len(self.y), generator=generator)[: training.selection_examples]
        sample = upload(sample, self.y.device)
        first = network.cut if all(bool(layer.frozen.all()) for layer in network.g) else 0  # else G may still recruit
        seen = self._frozen.stream(first, sample)
        activations = total_activations(network, seen, first)
        rewire(network, activations, first, training.tau(phase), training.selection, generator)
        if not bool((network.layers[-1].ranks >= 1).any()):
            raise SilentNetworkError("no output unit responds to the episode's examples: are they all zero?")

    def train(
        self, network: Network, generator: torch.Generator, reporter: Reporter, group: ShardGroup | None = None
    ) -> float:
        """Step 5: train the active units for the phase's epochs and write them back; return the phase's mean loss.

        `group`: the processes that share the shards of each batch, where batches have shards.
        """
        training = self.config.training
        live = LiveNetwork(network, self._frozen, self._replay)
        optimiser = Adadelta(live.parameters, training.learning_rate) if live.parameters else None
        epochs, steps = self.epochs(training)
        losses = []
        for epoch in range(1, epochs + 1):
            reporter.epoch = epoch
            total = torch.zeros((), device=self.y.device)
            for step, (index, drawn) in enumerate(self._draw(training.batch_size, generator), 1):
                total += self._step(live, optimiser, index, drawn, group)
                reporter.step(network, len(index), lambda total=total, step=step: float(total) / step)  # type: ignore[misc]
            reporter.loss = float(total) / steps
            if not math.isfinite(reporter.loss):
                raise NonFiniteLossError(f"the loss became {reporter.loss} in phase {reporter.phase}, epoch {epoch}")
            losses.append(reporter.loss)
            reporter.notify("epoch-ended", network)
        live.write_back()
        return sum(losses) / epochs

    def _draw(self, batch_size: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor | None]]:
        """An epoch's steps: stream examples and, where there is replay, as many replayed activations.

        All at once: on an accelerator, steps then follow one another without the host's having a say.
        """
        order = torch.randperm(len(self.y), generator=generator)
        stream = upload(order, self.y.device).split(batch_size)
        if self._replay is None:
            return [(index, None) for index in stream]
        drawn = torch.cat([self._replay.draw(len(index), generator) for index in stream])
        return list(zip(stream, upload(drawn, self.y.device).split(batch_size), strict=True))

    def _step(
        self,
        live: LiveNetwork,
        optimiser: Adadelta | None,
        index: Tensor,
        drawn: Tensor | None,
        group: ShardGroup | None,
    ) -> Tensor:
        """One step on some stream examples and as many replayed activations; return its loss."""
        y = self.y[index]
        if self._replay is not None and drawn is not None:
            y = torch.cat((y, self._replay.y[drawn]))  # (2n,)
        if len(y) < 2:
            return torch.zeros((), device=y.device)
        with torch.set_grad_enabled(optimiser is not None):
            if group is not None:
                loss = sharded_loss(group, live, index, drawn, y, self.config.training)
            else:
                z = live.represent(index, drawn)
                loss = supervised_contrastive_loss(z, y, self.config.training.temperature)
        if optimiser is not None:
            if group is None:
                reduce_anchor_losses(loss, y, self.config.training.anchor_losses).backward()
            optimiser.step()
        return loss.detach()


@dataclass(frozen=True)
class Consolidated:
    """The learner's state after an episode."""

    network: Network
    stm: ShortTermMemory
    ltm: LongTermMemory
    predictor: VotePredictor


@torch.no_grad()
def consolidate(
    network: Network,
    trainer: EpisodeTrainer,
    episode: RunningEpisode,
    number: int,
    stm: ShortTermMemory,
    ltm: LongTermMemory,
    labels: Labels,
    config: LearnerConfig,
    preprocessor: Preprocessor,
    generator: torch.Generator,
) -> Consolidated:
    """Steps 6 to 10: promote, fill STM, write LTM, purge STM, re-initialise idle units. Changes `network`, its copy.

    `number`: of the episode among those that the network has learned.
    """
    promote(network)
    subnetwork = active_subnetwork(network)
    arrivals = list(_arrivals(network, trainer, number, config.memory.stm_capacity, generator))
    stm = stm.admit(arrivals)
    ltm = _write(ltm, stm, network, subnetwork, number, config.memory)
    ltm = novelty.calibrate(ltm)
    predictor = VotePredictor(preprocessor, network, ltm, labels, config.prediction)
    ltm = _refer(ltm, predictor, episode, number, generator)
    stm = stm.purge(number, config.memory.replayed_episodes)
    if not config.stream.blurry:
        reinitialise_idle(network, config.architecture.fan_in, generator)
    return Consolidated(network, stm, ltm, VotePredictor(preprocessor, network, ltm, labels, config.prediction))


def _arrivals(
    network: Network, trainer: EpisodeTrainer, episode: int, capacity: int, generator: torch.Generator
) -> Iterator[StoredClass]:
    """Packed activations of randomly chosen examples of each class of the episode, as many as can find room."""
    classes = trainer.y.unique()
    most = -(-capacity // len(classes))
    for class_id in classes:
        members = torch.nonzero(trainer.y == class_id).squeeze(1)
        members = members[upload(torch.randperm(len(members), generator=generator)[:most], members.device)]
        h = torch.cat([network.run(trainer.features(part), 0, network.cut) for part in members.split(_CHUNK)])
        yield StoredClass(int(class_id), episode, pack(h))


def _write(
    ltm: LongTermMemory,
    stm: ShortTermMemory,
    network: Network,
    subnetwork: CompactNetwork,
    episode: int,
    config: MemoryConfig,
) -> LongTermMemory:
    """Step 8: representations of every class in STM, masked by the rank that its age asks for."""
    references = {memory.class_id: memory.reference for memory in ltm.classes}
    ranks = network.layers[-1].ranks
    written: list[ClassMemory] = []
    for stored in stm.classes:
        h = stm.activations(
            replace(stored, packed=stored.packed.take(torch.arange(min(config.ltm_per_class, len(stored.packed)))))
        )
        z = torch.zeros(len(h), len(ranks), device=ranks.device)
        z[:, subnetwork.output_units] = subnetwork.f(subnetwork.replayable(upload(h, ranks.device)))
        memory = remember(stored.class_id, stored.episode, z, ranks >= 2 + episode - stored.episode)
        written.append(replace(memory, reference=references.get(stored.class_id, memory.reference)))
    return ltm.put(written)


def _refer(
    ltm: LongTermMemory,
    predictor: VotePredictor,
    episode: RunningEpisode,
    number: int,
    generator: torch.Generator,
) -> LongTermMemory:
    """Novelty references of the episode's classes: from held-out examples, or from training examples where none are."""
    assert episode.examples is not None
    x, y = episode.examples.x[episode.heldout], episode.examples.y[episode.heldout]
    refreshed = []
    for memory in ltm.classes:
        if memory.episode != number:
            continue
        own = x[y == memory.class_id]
        if not len(own):
            members = torch.nonzero(episode.examples.y == memory.class_id).squeeze(1)
            own = episode.examples.x[members[torch.randperm(len(members), generator=generator)[: novelty.REFERENCES]]]
        refreshed.append(replace(memory, reference=predictor.novelty_ratios(own)))
    return ltm.put(refreshed)
