"""Every error the engine raises, in one tree.

An error names the offending value and leaves the learner exactly as it was before the call.

SharpError
├── ConfigError                a setting is out of range or settings contradict each other
├── InputError                 examples or labels that cannot be used
│   ├── ShapeError             not the learner's input shape
│   ├── DtypeError             neither uint8 nor floating point
│   ├── NonFiniteError         NaN or infinity among the values
│   ├── LabelError             wrong number or kind of labels
│   ├── EmptyEpisodeError      an episode without examples
│   └── NoPositivePairError    no class of the episode has two examples: nothing to contrast
├── UnknownClassError          a class the learner does not hold
├── NothingLearnedError        a question that needs a learned episode
├── EpisodeStateError          an episode is in progress, or none is, when the call needs the opposite
├── Cancelled                  the caller asked to stop
├── EpisodeFailedError         training could not go on
│   ├── NonFiniteLossError     the loss became NaN or infinite
│   └── SilentNetworkError     no output unit responds to the episode's examples
├── ShardingError              a process that shares the learner's shards is lost, or differs
└── SnapshotError              a file that is not a valid snapshot
    └── SnapshotVersionError   a valid snapshot of a format this version cannot read
"""

from __future__ import annotations


class SharpError(Exception):
    """Base of everything the engine raises on purpose."""


class ConfigError(SharpError, ValueError):
    """A setting is out of range or contradicts another."""


class InputError(SharpError, ValueError):
    """Examples or labels that cannot be used."""


class ShapeError(InputError):
    """Examples that do not have the learner's input shape."""


class DtypeError(InputError):
    """Examples that are neither uint8 nor floating point."""


class NonFiniteError(InputError):
    """NaN or infinity among the examples' values."""


class LabelError(InputError):
    """The wrong number of labels, or labels of the wrong kind."""


class EmptyEpisodeError(InputError):
    """An episode without examples."""


class NoPositivePairError(InputError):
    """No class has two examples, so the contrastive loss has nothing to pull together."""


class UnknownClassError(SharpError, LookupError):
    """A class the learner does not hold."""


class NothingLearnedError(SharpError):
    """The question can be answered only after an episode was learned."""


class EpisodeStateError(SharpError):
    """An episode is in progress, or none is, when the call needs the opposite."""


class Cancelled(SharpError):  # noqa: N818 (not a failure: the caller asked for it)
    """The caller asked to stop; the learner is as it was at the end of the last phase."""


class EpisodeFailedError(SharpError):
    """Training could not go on; the learner is as it was at the end of the last phase."""


class NonFiniteLossError(EpisodeFailedError):
    """The loss became NaN or infinite."""


class SilentNetworkError(EpisodeFailedError):
    """No output unit responds to the episode's examples, so there is nothing to train."""


class ShardingError(SharpError):
    """A process that shares the learner's shards is lost, or differs; the learner is as at the end of the last phase.

    The episode can be resumed, with as many processes as there are then.
    """


class SnapshotError(SharpError):
    """The file is not a valid snapshot."""


class SnapshotVersionError(SnapshotError):
    """The snapshot's format is one this version cannot read."""
