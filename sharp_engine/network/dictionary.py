"""A dictionary of image patches: a G that is made in seconds from the first episode's images, without their labels.

Random patches are normalised, whitened and clustered into K directions; an image is described by how strongly each
direction answers, in both signs, in each cell of a coarse grid (Coates, Lee and Ng, 2011). Patches look much the same
in all images, so that two classes suffice to describe the next hundred. Once made it never changes.

It is a convolution and two box filters, not an unfolding: with p a patch and w a whitened direction,
w · (p − mean(p)) / deviation(p) = (w − mean(w)) · p / deviation(p). What lies between the convolution and the grid is
large and soon forgotten: it is looked at as seldom as can be, and in parts that stay near the processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from sharp_engine.config import DictionaryConfig

_NEAR, _AT_ONCE = 1 << 20, 1 << 26
"""Responses per convolution: as many as stay near the processor; on other devices, which want much work at once, more.
"""

THRESHOLD = 0.35
"""Response below which a direction is silent."""

_SILENCE = 2.0**-50
"""Stands for no response while roots are taken, which takes several times as long of 0; no other root notices it."""

CONTRAST_FLOOR = 0.005
"""Added to the variance of a patch before it is divided out, so that flat patches stay flat."""

_WHITENING_FLOOR = 0.1
"""Added to the eigenvalues of the patches' covariance before they are whitened."""

_ROUNDS = 8
"""Rounds of spherical k-means."""

_LEAST_LENGTH = 1e-6
"""A direction shorter than this has lost all its patches and is drawn anew."""


def patch_side(config: DictionaryConfig, shape: tuple[int, ...]) -> int:
    """Side of the patches for images (channels, height, width): the configured one, or what fits."""
    return min(config.patch, *shape[1:])


def feature_count(config: DictionaryConfig, channels: int) -> int:
    """How many features an image has."""
    chosen = config.for_channels(channels)
    assert chosen.atoms is not None and chosen.grid is not None
    return 2 * chosen.atoms * chosen.grid**2


@dataclass(frozen=True)
class PatchDictionary:
    """The directions, with normalisation and whitening folded into them."""

    weight: Tensor
    """(atoms, channels, side, side)"""
    offset: Tensor
    """(atoms,): the response of the mean patch."""
    config: DictionaryConfig
    """With atoms and grid chosen."""

    @property
    def nbytes(self) -> int:
        """Bytes of the directions."""
        return sum(t.numel() * t.element_size() for t in (self.weight, self.offset))

    def __call__(self, x: Tensor) -> Tensor:
        """Features of images x (n, channels, height, width), best in channels-last order: (n, 2 · atoms · grid²)."""
        atoms, side, grid = len(self.weight), self.weight.shape[-1], self.config.grid
        assert grid is not None
        height, width = x.shape[2] - side + 1, x.shape[3] - side + 1
        rows, columns = _cells(height, grid, x.device), _cells(width, grid, x.device)
        cells = torch.einsum("hi,wj->ijhw", rows, columns).reshape(grid * grid, height * width)
        most = _NEAR if x.device.type == "cpu" else _AT_ONCE
        chunk = max(1, most // (atoms * height * width))
        return torch.cat([self._features(part, cells) for part in x.split(chunk)])

    def _features(self, x: Tensor, cells: Tensor) -> Tensor:
        side = self.weight.shape[-1]
        mean = F.avg_pool2d(x.mean(1, keepdim=True), side, stride=1)  # (n, 1, h', w') of each patch
        square = F.avg_pool2d((x * x).mean(1, keepdim=True), side, stride=1)
        scale = (square - mean * mean).clamp_(min=0.0).add_(CONTRAST_FLOOR).rsqrt_()
        response = F.conv2d(x, self._centred).permute(0, 2, 3, 1).flatten(1, 2)  # (n, places, atoms)
        torch.addcmul(-self.offset, response, scale.view(len(x), -1, 1), out=response)
        answers = F.softshrink(response, THRESHOLD)
        balance = cells @ answers  # (n, cells, atoms): of one sign less the other
        strength = cells @ answers.abs_()  # of both
        signs = [0.5 * half.transpose(1, 2).flatten(1) for half in (strength + balance, strength - balance)]
        # The root makes their distributions less skewed.
        return torch.cat(signs, dim=1).clamp_(min=_SILENCE**2).sqrt_().sub_(_SILENCE)

    @cached_property
    def _centred(self) -> Tensor:
        """The directions as they see a patch whose mean was not taken off."""
        return self.weight - self.weight.mean((1, 2, 3), keepdim=True)


def _cells(places: int, grid: int, device: torch.device) -> Tensor:
    """Shares of places in a row in the cells of a grid, which overlap where they don't fit: (places, grid)."""
    place, cell = torch.arange(places, device=device)[:, None], torch.arange(grid, device=device)
    inside = (place >= cell * places // grid) & (place < -(-(cell + 1) * places // grid))
    return inside / inside.sum(0)


@torch.no_grad()
def learn_dictionary(x: Tensor, config: DictionaryConfig, generator: torch.Generator) -> PatchDictionary:
    """Make a dictionary from preprocessed images x (n, channels, height, width), whatever their number."""
    config = config.for_channels(x.shape[1])
    side = patch_side(config, tuple(x.shape[1:]))
    places = len(x) * (x.shape[2] - side + 1) * (x.shape[3] - side + 1)
    most = min(config.patches, max(places, config.atoms or 1))  # few small images have no more to show
    patches = _random_patches(x, side, most, generator)  # (patches, values)
    centred = patches - patches.mean(1, keepdim=True)
    normal = centred * (centred.square().mean(1, keepdim=True) + CONTRAST_FLOOR).rsqrt()
    mean = normal.mean(0)
    values, vectors = torch.linalg.eigh((normal - mean).T @ (normal - mean) / len(normal))
    whitening = (vectors * (values.clamp(min=0.0) + _WHITENING_FLOOR).rsqrt()) @ vectors.T
    directions = _cluster((normal - mean) @ whitening, config, generator)  # (atoms, values)
    folded = directions @ whitening  # whitening is symmetric
    return PatchDictionary(folded.view(-1, x.shape[1], side, side).contiguous(), folded @ mean, config)


def _random_patches(x: Tensor, side: int, count: int, generator: torch.Generator) -> Tensor:
    n, channels, height, width = x.shape
    draw = [torch.randint(most, (count,), generator=generator) for most in (n, height - side + 1, width - side + 1)]
    image, top, left = (place.to(x.device) for place in draw)
    offset = torch.arange(side, device=x.device)
    rows = (top[:, None] + offset)[:, None, :, None]  # (patches, 1, side, 1)
    columns = (left[:, None] + offset)[:, None, None, :]
    channel = torch.arange(channels, device=x.device)[None, :, None, None]
    return x[image[:, None, None, None], channel, rows, columns].flatten(1)


def _cluster(patches: Tensor, config: DictionaryConfig, generator: torch.Generator) -> Tensor:
    """Unit directions by spherical k-means; a patch and its negative belong together, as both signs are used."""
    start = torch.randperm(len(patches), generator=generator)[: config.atoms].to(patches.device)
    directions = _unit(patches[start], generator)
    for _ in range(_ROUNDS):
        response = patches @ directions.T  # (patches, atoms)
        nearest = response.abs().argmax(1, keepdim=True)
        weighted = patches * response.gather(1, nearest)
        directions = _unit(torch.zeros_like(directions).index_add_(0, nearest.squeeze(1), weighted), generator)
    return directions


def _unit(directions: Tensor, generator: torch.Generator) -> Tensor:
    """Of length one; those that have none are drawn at random."""
    drawn = torch.randn(directions.shape, generator=generator).to(directions.device)
    short = directions.norm(dim=1, keepdim=True) < _LEAST_LENGTH
    return F.normalize(torch.where(short, drawn, directions), dim=1)
