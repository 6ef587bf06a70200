"""The shards of a batch, and the processes that share them: who computes a shard changes no bit of the result.

A batch is split into `training.shards` parts, by place. Each part's representations are computed alone; all of them,
in shard order, make the loss, as in a batch that is not split; each part's gradients are computed alone and added in
shard order. Where `torch.distributed` is initialised, every process runs the same learner on the same examples and
computes its share of the shards; else one process computes them all, in turn, by the same arithmetic. Sums are never
left to a collective, whose order is its own. No process may go on alone: one that is lost or differs is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from sharp_engine.config import TrainingConfig
from sharp_engine.errors import ConfigError, ShardingError
from sharp_engine.training.loss import reduce_anchor_losses, supervised_contrastive_loss
from sharp_engine.training.phase import LiveNetwork
from sharp_engine.training.progress import Cancel


def shard_group(shards: int, device: torch.device) -> ShardGroup | None:
    """The processes that share a learner's shards; nobody where it has one only: it takes no notice of others.

    ConfigError if the processes cannot share the shards evenly.
    """
    if shards == 1:
        return None
    processes, rank = 1, 0
    if dist.is_available() and dist.is_initialized():
        processes, rank = dist.get_world_size(), dist.get_rank()
    if shards % processes:
        raise ConfigError(f"training.shards must be a multiple of the {processes} processes, not {shards}")
    return ShardGroup(shards, processes, rank, device)


class ShardGroup:
    """One of the processes: rank r of P computes shards r·N/P … (r+1)·N/P − 1 of N."""

    def __init__(self, shards: int, processes: int, rank: int, device: torch.device) -> None:
        self.shards, self.processes = shards, processes
        self._each = shards // processes
        self.own = range(rank * self._each, (rank + 1) * self._each)
        self._device = device

    def gather(self, own: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
        """The rows of all shards in their order, of which each process gives its own; `counts`: rows of each shard."""
        rows = torch.cat(list(own))
        if self.processes == 1:
            return rows
        sizes = [sum(counts[first : first + self._each]) for first in range(0, self.shards, self._each)]
        sent = rows.new_zeros(max(sizes), *rows.shape[1:])  # collectives want the same size of all
        sent[: len(rows)] = rows
        received = self._gather(sent)
        return torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])

    def sum(self, own: Iterable[Tensor]) -> Tensor:
        """The sum of a vector of each shard, added in shard order. May change what it is given."""
        if self.processes > 1:
            own = self._gather(torch.stack(list(own))).flatten(0, 1)
        vectors = iter(own)
        total = next(vectors)
        for vector in vectors:
            total.add_(vector)
        return total

    def any(self, here: bool) -> bool:
        """Whether it is so in any of the processes."""
        if self.processes == 1:
            return here
        return bool(self._gather(torch.tensor([here], dtype=torch.uint8, device=self._device)).any())

    def require_same(self, state: Iterable[Tensor | str]) -> None:
        """Raise ShardingError unless all processes have the same state, and compute with the same number of threads."""
        if self.processes == 1:
            return
        digest = hashlib.sha256(f"{torch.get_num_threads()} threads".encode())
        for item in state:
            digest.update(item.encode() if isinstance(item, str) else item.cpu().contiguous().numpy().tobytes())
        received = self._gather(torch.tensor(list(digest.digest()), dtype=torch.uint8, device=self._device))
        if bool((received != received[0]).any()):
            raise ShardingError(
                "the processes that share a learner's shards differ in settings, examples, state or number of threads"
            )

    def agreed(self, cancel: Cancel | None) -> Cancel | None:
        """A cancellation that reaches all processes at the same step, whichever of them was asked."""
        return cancel if self.processes == 1 else _AgreedCancel(self, cancel)

    def _gather(self, sent: Tensor) -> Tensor:
        """What each process sends, (processes, …): all of the same shape."""
        received = sent.new_empty(self.processes * sent.numel())
        try:
            dist.all_gather_into_tensor(received, sent.contiguous().view(-1))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ShardingError(f"another process that shares the learner's shards is lost: {reason}") from error
        return received.view(self.processes, *sent.shape)


class _AgreedCancel:
    """Must be asked equally often in all processes."""

    def __init__(self, group: ShardGroup, cancel: Cancel | None) -> None:
        self._group, self._cancel = group, cancel

    def is_set(self) -> bool:
        return self._group.any(self._cancel is not None and self._cancel.is_set())


def sharded_loss(
    group: ShardGroup,
    live: LiveNetwork,
    index: Tensor,
    drawn: Tensor | None,
    y: Tensor,
    training: TrainingConfig,
) -> Tensor:
    """The loss of one step; where gradients are enabled, the live network's parameters have theirs afterwards.

    index: (n,) stream examples; drawn: (n,) replayed activations; y: their classes, replayed ones behind.
    """
    places = torch.arange(len(y), device=y.device)
    stream, replayed = places[: len(index)].tensor_split(group.shards), places[len(index) :].tensor_split(group.shards)
    counts = [len(part) + len(other) for part, other in zip(stream, replayed, strict=True)]
    own = [
        live.represent(index[stream[k]], None if drawn is None else drawn[replayed[k] - len(index)]) for k in group.own
    ]
    z = group.gather([part.detach() for part in own], counts)  # (rows of all shards, units)
    y = y[torch.cat([place for pair in zip(stream, replayed, strict=True) for place in pair])]
    z.requires_grad_(torch.is_grad_enabled())
    loss = supervised_contrastive_loss(z, y, training.temperature)
    if z.requires_grad:
        (slopes,) = torch.autograd.grad(reduce_anchor_losses(loss, y, training.anchor_losses), z)
        _backpropagate(group, live, own, [slopes.split(counts)[k] for k in group.own])
    return loss


def _backpropagate(group: ShardGroup, live: LiveNetwork, own: Sequence[Tensor], slopes: Sequence[Tensor]) -> None:
    """Give the parameters the gradients of all shards. `slopes`: of the loss by the representations in `own`."""
    parameters = [parameter for parameter, _ in live.parameters]

    def of_shard(z: Tensor, slope: Tensor) -> Tensor:
        gradients = torch.autograd.grad(z, parameters, slope, materialize_grads=True)
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    total = group.sum(of_shard(z, slope) for z, slope in zip(own, slopes, strict=True))
    for parameter, gradient in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = torch.empty_like(parameter).copy_(gradient.view(parameter.shape))  # laid out as it is
