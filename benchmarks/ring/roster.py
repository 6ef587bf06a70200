"""Who is in the ring, where each one's code is, and what a user must know before picking it.

Facts that can be measured are not here: bytes, seconds, and whether a saved learner goes on bit by bit are found by
running it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.errors import OptionError
from benchmarks.ring.rivals.networks import Part

Kind = Literal["paper", "user", "ours"]

KINDS: dict[Kind, str] = {
    "paper": "the paper's rows",
    "user": "what a user would pick",
    "ours": "ours",
}


@dataclass(frozen=True)
class Entry:
    """One contestant."""

    name: str
    """As `--only` takes it."""
    title: str
    kind: Kind
    code: str
    """`module:class`, called with a `Setup`."""
    library: bool = False
    """Whether it needs the ring's own environment."""
    slow: bool = False
    """Whether it trains a network by gradients, for minutes."""
    at_once: bool = False
    """Whether it gets everything in one episode: no continual learner, a bound."""
    without_boundaries: bool | None = True
    """Whether it may be used where nobody says where episodes end; absent where there are none."""
    needs_classes: bool = False
    """Whether it must know the number of classes beforehand."""
    forgets: bool = False
    """Whether a class can be taken out of it, the others left as they are."""
    published: str = ""
    """Its name in the paper's tables."""
    images_only: bool = False
    known_data_only: bool = False
    """Whether it has settings only for the paper's data sets."""
    once_per_class: bool = False
    """Whether a class may not come back."""
    freezes: Part | None = None
    """The part of its network that is frozen where layers are pretrained."""

    def unfit(self, *, vectors: bool, known: bool, blurry: bool, pretrained: bool = False) -> str | None:
        """Why it cannot stand in a ring, or nothing."""
        if self.images_only and vectors:
            return "it learns images"
        if self.known_data_only and not known:
            return "the paper has no settings for this data"
        if self.once_per_class and blurry:
            return "its code takes every class of an episode for a new one"
        if pretrained and self.freezes is None:
            return "it freezes no layers that could be pretrained"
        return None


_RIVALS = "benchmarks.ring.rivals"


def _paper(
    name: str,
    title: str,
    published: str,
    code: str,
    *,
    library: bool = True,
    without_boundaries: bool = False,
    forgets: bool = False,
    once_per_class: bool = False,
    freezes: Part | None = None,
) -> Entry:
    """A row of the paper: a network with one output per class, trained by gradients."""
    return Entry(
        name,
        title,
        "paper",
        f"{_RIVALS}.{code}",
        library=library,
        slow=True,
        without_boundaries=without_boundaries,
        needs_classes=True,
        forgets=forgets,
        published=published,
        once_per_class=once_per_class,
        freezes=freezes,
    )


ROSTER: tuple[Entry, ...] = (
    Entry("sharp", "SHARP Serve, default", "ours", "benchmarks.ring.ours:Default", forgets=True,
          freezes="front"),
    Entry("sharp-network", "SHARP Serve, network alone", "ours", "benchmarks.ring.ours:NetworkAlone", forgets=True,
          freezes="front"),
    Entry(
        "sharp-paper", "SHARP Serve, the paper's preset", "ours", "benchmarks.ring.ours:PaperPreset",
        slow=True, forgets=True, published="SHARP", images_only=True, known_data_only=True,
        freezes="front",
    ),
    Entry("means", "mean per class", "user", f"{_RIVALS}.scikit:ClassMeans", forgets=True),
    Entry("knn", "5-NN, everything kept", "user", f"{_RIVALS}.scikit:Neighbours", forgets=True),
    Entry("slda", "Deep SLDA", "user", f"{_RIVALS}.frozen_library:DeepSlda", library=True, slow=True,
          needs_classes=True, forgets=True, freezes="hidden"),
    Entry("ridge", "random projections, ridge", "user", f"{_RIVALS}.projected_ridge:ProjectedRidge", forgets=True,
          freezes="hidden"),
    Entry("fecam", "FeCAM", "user", f"{_RIVALS}.frozen_library:FeCam", library=True, slow=True,
          without_boundaries=False, forgets=True, freezes="hidden"),
    Entry("sgd-classifier", "SGDClassifier.partial_fit", "user", f"{_RIVALS}.scikit:LinearInParts", needs_classes=True),
    Entry("river", "River, naive Bayes", "user", f"{_RIVALS}.stream_learning:RiverNaiveBayes", library=True),
    _paper("sgd", "SGD", "SGD (lower bound)", "library:FineTuning", without_boundaries=True),
    _paper("icarl", "iCaRL", "iCaRL", "icarl:Icarl", once_per_class=True),
    _paper("der", "DER", "DER", "library:DarkExperience"),
    _paper("er", "ER", "ER", "library:ExperienceReplay"),
    _paper("fdr", "FDR", "FDR", "fdr:FunctionDistance", library=False),
    _paper("agem", "A-GEM", "A-GEM", "library:AveragedGem"),
    _paper("gdumb", "GDumb", "", "library:Gdumb", without_boundaries=True, forgets=True),
    _paper("remind", "REMIND", "", "remind:Remind", library=False, without_boundaries=True, freezes="front"),
    _paper("bir", "BIR", "", "brain_replay:BrainInspiredReplay", library=False, freezes="convolutions"),
    Entry(
        "joint", "Joint", "paper", f"{_RIVALS}.library:Joint", library=True, slow=True, at_once=True,
        without_boundaries=None, needs_classes=True, published="Joint (upper bound)",
    ),
)  # fmt: skip
"""In the order they run: what is quick first."""


def chosen(only: str) -> tuple[Entry, ...]:
    """Those that a list of names and kinds with commas asks for; nothing asks for all.

    >>> [entry.name for entry in chosen("knn,ours")]
    ['sharp', 'sharp-network', 'sharp-paper', 'knn']
    """
    words = [word.strip() for word in only.split(",") if word.strip()]
    known = {*KINDS, *(entry.name for entry in ROSTER)}
    for word in words:
        if word not in known:
            raise OptionError(f"no contestant {word!r}: there are {', '.join(sorted(known))}")
    return tuple(entry for entry in ROSTER if not words or entry.name in words or entry.kind in words)


def entry(name: str) -> Entry:
    """By its name."""
    (found,) = (one for one in ROSTER if one.name == name)
    return found
