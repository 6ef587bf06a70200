"""What a learner is made of: settings, network, memories, knowledge, the episode in progress, and what answers.

It never learns or forgets anything by itself: the modules beside it do, and say so by `changed`, so that what answers
is made anew.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from sharp_engine.config import LearnerConfig
from sharp_engine.device import resolve_device
from sharp_engine.errors import EmptyEpisodeError, EpisodeStateError, LabelError, NothingLearnedError
from sharp_engine.inputs import as_examples
from sharp_engine.labels import Label, LabelLike, Labels, as_labels
from sharp_engine.memory.first_examples import FirstExamples
from sharp_engine.memory.long_term import LongTermMemory
from sharp_engine.memory.short_term import ShortTermMemory
from sharp_engine.network.architecture import Architecture, Normaliser, resolve_architecture
from sharp_engine.network.backbone import build_backbone, read_weights
from sharp_engine.network.features import FeatureMap
from sharp_engine.network.preprocessing import Preprocessor
from sharp_engine.network.pretrained import build_pretrained
from sharp_engine.network.state import Network, build
from sharp_engine.prediction.answers import Predictor
from sharp_engine.prediction.metric_predictor import MetricPredictor
from sharp_engine.prediction.vote import VotePredictor
from sharp_engine.stream.segmenter import Segmenter
from sharp_engine.training.episode import Examples, RunningEpisode
from sharp_engine.training.knowledge import Knowledge, MetricLearner, nothing_known
from sharp_engine.training.pretraining import freeze_pretrained, load_pretrained


class LearnerState:
    """Everything a learner is; what it does for its users is in `Learner`."""

    def __init__(self, config: LearnerConfig | None = None) -> None:
        self.config = config or LearnerConfig()
        self.device = resolve_device(self.config.device)
        self.architecture: Architecture | None = None
        """What was chosen; absent until the input shape is known."""
        self.labels = Labels()
        self.episodes = 0
        """How many episodes were learned."""
        self.network_episodes = 0
        """How many of them the network learned: the clock by which its memories age."""
        self.generator = torch.Generator().manual_seed(self.config.seed)
        """All of the learner's random numbers."""
        self.ltm = LongTermMemory()
        self.running: RunningEpisode | None = None
        """The episode in progress, as it stands at the end of a phase."""
        self.pending: list[Examples] = []
        """Observed, not yet learned."""
        self.found: list[int] = []
        """Lengths of the complete episodes at the head of `pending`."""
        self.knowledge: Knowledge | None = None
        """What is known in the learned metric, where there is one."""
        self.first: FirstExamples | None = None
        """What was taught before there was a scale of features, while that is all there is."""
        self._predictor: Predictor | None = None
        if self.config.architecture.input_shape is not None:
            self.build(self.config.architecture.input_shape)

    def build(
        self, input_shape: tuple[int, ...], backbone: nn.Module | None = None, *, load_weights: bool = True
    ) -> None:
        """Settle the architecture and make the network. The first batch does this by itself.

        A snapshot brings its own weights: it gives its backbone, loads no pretrained G, and fills a blank network.
        """
        config, device, stable = self.config.architecture, self.device, self.config.metric.enabled
        architecture = resolve_architecture(config, input_shape, stable)
        if config.backbone is not None:
            backbone = backbone or build_backbone(config.backbone, device)
        elif architecture.pretrained and backbone is None:
            assert config.pretrained is not None
            state = read_weights(Path(config.pretrained))
            backbone = build_pretrained(architecture, state, config.pretrained, device)
        preprocessor = self.preprocessor_for(architecture, backbone)
        features = preprocessor.shape_of_features(input_shape)
        # Nothing is drawn from the learner's own before everything fits.
        generator = self.random_copy() if load_weights else None
        m = self.config.memory.replayed_episodes
        network = build(architecture, config.density, config.fan_in, m, features, generator, device)
        if config.pretrained is not None and not stable:
            freeze_pretrained(network)
            if load_weights:
                load_pretrained(network, config.pretrained)
        self.preprocessor = preprocessor
        self.network: Network = network
        self.stm = ShortTermMemory(network.cut_shape, self.config.memory.stm_capacity)
        self.segmenter = Segmenter(self.config.stream, int(torch.tensor(input_shape).prod()), self.config.seed)
        if generator is not None:
            self.generator.set_state(generator.get_state())
        if stable:
            metric = self.config.metric
            count = metric.random_features_for(features[0])
            self.feature_map = FeatureMap(features[0], count, self.config.seed, device, metric.random_function)
            self.metric_learner = MetricLearner(self.feature_map, self.config.metric)
            self.knowledge = self.nothing_known()
            if architecture.kind != "dictionary":
                self.first = FirstExamples(torch.zeros(0, features[0], device=device))
        self.architecture = architecture

    def preprocessor_for(self, architecture: Architecture, backbone: nn.Module | None) -> Preprocessor:
        """What stands before the first layer, not fitted to anything yet."""
        config = self.config.architecture
        normaliser = Normaliser(config, architecture.input_shape, self.device)
        dictionary = config.dictionary if architecture.kind == "dictionary" else None
        return Preprocessor(normaliser, self.device, backbone, dictionary, self.config.metric.enabled)

    def nothing_known(self) -> Knowledge:
        """Knowledge before the first example."""
        return nothing_known(self.feature_map.stable, self.feature_map.dimensions, self.device)

    # ---- what comes in ------------------------------------------------------------------------------------------

    def validated(self, x: object, y: LabelLike) -> tuple[Tensor, list[Label]]:
        """Examples and labels that fit this learner; changes nothing."""
        shape = self.architecture.input_shape if self.architecture is not None else None
        examples, labels = as_examples(x, shape), as_labels(y)
        if len(labels) != len(examples):
            raise LabelError(f"{len(examples)} examples but {len(labels)} labels")
        if not labels:
            raise EmptyEpisodeError("there are no examples")
        self.labels.check(labels)
        return examples, labels

    def accept(self, examples: Tensor, labels: list[Label]) -> Examples:
        """Give labels their ids; the first batch decides on the architecture."""
        if self.architecture is None:
            self.build(tuple(examples.shape[1:]))
        return Examples(examples.clone(), self.labels.ids(labels))  # the caller may use its array again

    @property
    def pending_examples(self) -> int:
        """How many examples were observed and are not learned yet."""
        return sum(len(part.y) for part in self.pending)

    def require_no_episode(self) -> None:
        """Raise while an episode is in progress."""
        if self.running is not None:
            raise EpisodeStateError(f"episode {self.running.number} is in progress: resume or abandon it first")

    def require_running(self) -> RunningEpisode:
        """The episode in progress; raise if there is none."""
        if self.running is None:
            raise EpisodeStateError("no episode is in progress")
        return self.running

    # ---- random numbers -----------------------------------------------------------------------------------------

    def random_copy(self) -> torch.Generator:
        """The learner's random numbers from here on, to be drawn without the learner's changing."""
        return torch.Generator().set_state(self.generator.get_state())

    def side_generator(self) -> torch.Generator:
        """Random numbers that take nothing from the learner's own, and are the same whenever an episode is resumed."""
        return torch.Generator().manual_seed(self.config.seed + 1_000_003 * (self.episodes + 1))

    # ---- what answers -------------------------------------------------------------------------------------------

    @property
    def network_resting(self) -> bool:
        """Whether the network has stopped learning because its vote added nothing; `wake_network` starts it again."""
        patience = self.config.training.rest_after
        return self.knowledge is not None and 0 < patience <= self.knowledge.calibration.fruitless

    @property
    def predictor(self) -> Predictor:
        """What answers for the episodes learned so far; safe to use from other threads while this learner learns."""
        if self._predictor is None:
            self._predictor = self._make_predictor()
        return self._predictor

    def changed(self, predictor: Predictor | None = None) -> None:
        """Something that answers depend on is not as it was: from here on another predictor answers."""
        self._predictor = predictor

    def network_vote(self) -> VotePredictor | None:
        """The paper's vote, for what the network had learned when the episode in progress began."""
        if not self.ltm.classes:
            return None
        network = self.network if self.running is None else self.running.before
        return VotePredictor(self.preprocessor, network, self.ltm, self.labels, self.config.prediction)

    def _make_predictor(self) -> Predictor:
        nothing = NothingLearnedError("nothing was learned yet: there is no class to name")
        if self.architecture is None:
            raise nothing
        running, knowledge, episodes = self.running, self.knowledge, self.episodes
        vote = self.network_vote() if knowledge is None or knowledge.calibration.weight else None
        if knowledge is None:
            if vote is None:
                raise nothing
            return vote
        if running is not None and running.knowledge is not None:
            knowledge, episodes = running.knowledge, running.number
        if not knowledge.class_ids:
            raise nothing
        with torch.no_grad():
            learned = self.metric_learner.fit(knowledge, vote)
        return MetricPredictor(
            *(self.preprocessor, self.feature_map, learned, knowledge.episodic, knowledge.calibration),
            *(self.labels, episodes, vote),
        )
