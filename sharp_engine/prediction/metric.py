"""The learned metric: how semantic memory compares.

Features are whitened by the pooled within-class covariance, so that within every class they scatter alike in all
directions. A class of n examples is then a Gaussian about its mean whose place is uncertain: along an axis on which
class means vary by ψ it predicts mean m·nψ/(1 + nψ) and variance 1 + ψ/(1 + nψ), while everything seen predicts
variance 1 + ψ. The score is the logarithm of the ratio of the two likelihoods (probabilistic linear discriminant
analysis). For large n this is the nearest mean; a class of one example is not pushed away for being uncertain.
Still, what is uncertain loses to what is certain more often than not: a class gains a bonus while it has few examples.

The axes are those of the class means, each weighted by its count, with ψ less what the uncertainty of the means
explains, and never below a floor for directions that no class has used yet. Directions beyond all axes tell nothing
of which class an example is, only whether it is like anything seen.

Axes and ψ are made from the sums, like the whitening, and stay until these change: an example that is taught moves its
class's place among them, which takes a moment. A class that is new since then brings an axis of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from sharp_engine.config import MetricConfig
from sharp_engine.memory.semantic import SemanticMemory
from sharp_engine.prediction.rows import map_rows

Values = TypeVar("Values", Tensor, NDArray[Any])

_COLUMNS = 512
"""Columns per product with a triangular matrix: larger blocks of zeros are never multiplied."""

LENGTH = 0.7
"""How much of the squared length of its mean counts against a class; for the rest, the average of all classes does. If
classes scattered as Gaussians do, all of it would: in truth examples of a class that lies far out vary in how far."""

_LEAST_VARIATION = 0.05
"""Class means vary by at least this much per dimension: two classes of one example each say nothing of it."""

_FEW = 30.0
"""The bonus of a class falls to 1/e with so many examples."""

_NEAR = 0.1
"""Distances below this are bent so that none is negative and none is lost."""

_NOISE_OF_RANDOM = 0.3
"""Variance added to random features where there are as many examples as dimensions; it falls with the square
of the former."""

_BEYOND_AXES = 0.25
"""How much directions beyond the axes count for how familiar an example is: there are thousands of them, and counted in
full they drown what the axes tell."""

_NEGLIGIBLE = 1e-10
"""Axes along which class means vary by less than this share of the first axis are left out."""

_BEYOND = 1e-6
"""A new class that lies beyond the axes by less than this share of its squared distance from the centre brings none."""


@dataclass(frozen=True)
class Whitening:
    """The linear map after which every class scatters alike in all directions."""

    matrix: Tensor
    """(dimensions, dimensions) float32, zero below the diagonal: v = φ · matrix"""
    leverage: float
    """What one example's squared deviation, whitened, adds to the covariance: for leaving it out again."""
    energy: float
    """Mean squared length of whitened deviations from class means: the dimensions that count."""

    def __call__(self, phi: Tensor) -> Tensor:
        """Whitened examples: (n, dimensions)."""
        ends = [*range(_COLUMNS, len(self.matrix), _COLUMNS), len(self.matrix)]
        parts = zip([0, *ends], ends, strict=False)
        return torch.cat([phi[:, :end] @ self.matrix[:end, begin:end] for begin, end in parts], dim=1)

    def project(self, axes: Tensor) -> Tensor:
        """From φ to places along axes (dimensions, axes) of whitened space: (dimensions, axes)."""
        begins = range(0, len(self.matrix), _COLUMNS)
        return torch.cat([self.matrix[begin : begin + _COLUMNS, begin:] @ axes[begin:] for begin in begins])


def fit_whitening(memory: SemanticMemory, stable: int, config: MetricConfig) -> Whitening:
    """From the sums of a memory; the first `stable` dimensions are stable features, the others random ones.

    Random features pay only where there are many examples for each: until then they count as noisy.
    """
    device = memory.scatter.device
    at = torch.device("cpu") if device.type == "mps" else device
    means, freedom = memory.means.to(at, torch.float64), memory.freedom
    dimensions = len(memory.scatter)
    share = memory.counts.to(at, torch.float64)
    share /= share.sum().clamp(min=1.0)
    between = (share[:, None] * (means - share @ means).square()).sum(0)  # (dimensions,) variance of the class means
    # Where classes say little or nothing of their own scatter, that of their means stands in.
    variance = (memory.scatter.diagonal().to(at, torch.float64) + between) / (freedom + 1)
    variance = torch.where(variance > 0, variance, torch.ones_like(variance))
    deviation = variance.sqrt()
    alpha, added, inverse = 1.0, torch.ones_like(variance), None
    if freedom >= 2:
        correlations = _correlations(memory, deviation)
        alpha = min(1.0, config.shrinkage * _oracle_shrinkage(correlations[:stable, :stable], freedom))
        while alpha < 1.0:
            added = torch.full_like(variance, alpha)
            added[stable:] += _NOISE_OF_RANDOM * (dimensions / freedom) ** 2
            inverse = _inverse_factor(correlations.mul_(1.0 - alpha), added)
            if inverse is not None:
                break
            alpha = min(1.0, 10.0 * alpha + 1e-6)  # rounding, or a file from a stranger: only shrinkage can help
            correlations, added = _correlations(memory, deviation), torch.ones_like(variance)
    if inverse is None:
        inverse = torch.eye(dimensions, device=at)
    weighed = float((added * torch.linalg.vector_norm(inverse, dim=0).square()).sum())
    energy = (dimensions - weighed) / (1.0 - alpha) if alpha < 1.0 else 0.0
    matrix = inverse.div_(deviation.float()).T.contiguous().to(device)
    return Whitening(matrix, (1.0 - alpha) / max(freedom, 1), max(energy, 1.0))


def _correlations(memory: SemanticMemory, deviation: Tensor) -> Tensor:
    """The pooled covariance of features that are divided by their deviation: (dimensions, dimensions) float64."""
    scatter = memory.scatter.to(deviation.device, torch.float64)
    return scatter.div_(memory.freedom).div_(deviation[:, None]).div_(deviation)


def _inverse_factor(covariance: Tensor, added: Tensor) -> Tensor | None:
    """The inverse, in single precision, of the lower factor of a covariance with `added` along its diagonal.

    Nothing, if it has none. It takes the place of the covariance: matrices of this size are slow to come by.
    """
    covariance.diagonal().add_(added)
    lower, failed = covariance.mT, torch.zeros((), dtype=torch.int32, device=added.device)
    torch.linalg.cholesky_ex(lower, out=(lower, failed))
    if bool(failed):
        return None
    inverse = lower.float()  # no less exact in single precision
    _invert(inverse)
    return inverse


def _invert(lower: Tensor) -> None:
    """Invert a lower triangular matrix where it lies, by halves: a solver would multiply with all the zeros."""
    half = len(lower) // 2
    if len(lower) <= _COLUMNS:
        identity = torch.eye(len(lower), device=lower.device)
        lower.copy_(torch.linalg.solve_triangular(lower, identity, upper=False))
        return
    first, second, below = lower[:half, :half], lower[half:, half:], lower[half:, :half]
    _invert(first)
    _invert(second)
    for begin in range(0, half, _COLUMNS):  # columns need themselves and those after them …
        end = min(begin + _COLUMNS, half)
        below[:, begin:end] = below[:, begin:] @ first[begin:, begin:end]
    for end in range(len(second), 0, -_COLUMNS):  # … and rows themselves and those before them
        begin = max(end - _COLUMNS, 0)
        below[begin:end] = second[begin:end, :end] @ below[:end]
    below.neg_()


def _oracle_shrinkage(covariance: Tensor, freedom: int) -> float:
    """Oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero, 2010) towards the diagonal's mean."""
    dimensions = len(covariance)
    trace, squares = float(covariance.trace()), float(covariance.square().sum())
    spread = squares - trace**2 / dimensions
    if spread <= 0:
        return 1.0
    return min(1.0, ((1 - 2 / dimensions) * squares + trace**2) / ((freedom + 1 - 2 / dimensions) * spread))


@dataclass(frozen=True)
class Means:
    """Whitened class means, with everything that was taught."""

    class_ids: tuple[int, ...]
    counts: Tensor
    """(classes,) float64, on the CPU"""
    means: Tensor
    """(classes, dimensions) float32"""
    energy: float
    """Of the whitening."""


def whitened_means(memory: SemanticMemory, whitening: Whitening) -> Means:
    """Of everything that a memory has summed up."""
    v = map_rows(whitening, memory.means).results if len(memory.means) else memory.means
    return Means(memory.class_ids, memory.counts.to(torch.float64), v, whitening.energy)


@dataclass(frozen=True)
class Coordinates:
    """Whitened examples as scores need them."""

    z: Tensor
    """(n, axes)"""
    rest: Tensor
    """(n,) squared length beyond the axes: the same for all classes, it tells only how novel an example is"""


@dataclass(frozen=True)
class Frame:
    """Where classes differ: a centre, axes through it, and how much class means vary along each."""

    noise: float
    """Variance of unseen examples about their class along the axes, where that of seen ones is 1."""
    centre: Tensor
    """(dimensions,)"""
    axes: Tensor
    """(dimensions, axes): coordinates are (v − centre) · axes"""
    psi: Tensor
    """(axes,) float64"""
    least: float
    """ψ of every other direction."""
    examples: float
    """How many it was made from."""
    energy: float
    """Of the whitening, in the frame's unit."""

    def places(self, v: Tensor) -> Tensor:
        """Coordinates of whitened examples: (n, axes)."""
        return (v - self.centre) @ self.axes

    def widened(self, v: Tensor, counts: Tensor) -> Frame:
        """With axes for classes that lie beyond its own: whitened means (classes, dimensions), examples of each."""
        unit = math.sqrt(self.noise)
        around = (v - self.centre) / unit  # (classes, dimensions)
        beyond = around - (around @ self.axes) @ self.axes.T * self.noise
        beyond = beyond - (beyond @ self.axes) @ self.axes.T * self.noise  # what rounding left
        total = self.examples + float(counts.sum())
        weight = (counts / total).to(v.device, v.dtype)
        axes, variation = _axes(beyond, weight, len(v))
        kept = variation > _BEYOND * (weight * around.square().sum(1)).amax()
        variation = variation[kept].to(self.psi.device, self.psi.dtype) - self.energy / total
        psi = torch.cat((self.psi, variation.clamp(min=self.least)))
        return replace(self, axes=torch.cat((self.axes, axes[kept].T / unit), dim=1).contiguous(), psi=psi)


def fit_frame(known: Means, floor: float, noise: float) -> Frame:
    """From whitened class means."""
    device = known.means.device
    at = torch.device("cpu") if device.type == "mps" else device
    means = known.means.to(at, torch.float64) / math.sqrt(noise)
    weight = known.counts.to(at)
    weight = weight / weight.sum()
    centre = weight @ means
    axes, variation = _axes(means - centre, weight, max(len(means) - 1, 0))
    energy = known.energy / noise
    if len(axes):  # less what the uncertainty of the means explains, spread over the axes they span
        variation = variation - float((weight / known.counts.to(at)).sum()) * energy / len(axes)
    total = max(float(variation.clamp(min=0.0).sum()), _LEAST_VARIATION * energy)
    least = max(floor * total / energy, 1e-6)
    return Frame(
        noise,
        (centre * math.sqrt(noise)).to(device, torch.float32),
        (axes / math.sqrt(noise)).T.to(device, torch.float32).contiguous(),
        variation.clamp(min=least),
        least,
        float(known.counts.sum()),
        energy,
    )


class Metric:
    """Scores of whitened examples: log-likelihood ratios of every class against everything seen."""

    def __init__(self, frame: Frame, class_ids: tuple[int, ...], counts: Tensor, places: Tensor) -> None:
        """`counts`: (classes,) float64; `places`: (classes, axes), of class means in the frame."""
        self.frame = frame
        self.class_ids = class_ids
        self.counts = counts
        self.places = places
        device = frame.centre.device
        at, psi = frame.psi.device, frame.psi
        n = counts.to(at)[:, None]
        unsure = 1.0 + n * psi  # (classes, axes)
        place = places.to(at, torch.float64) * (n * psi / unsure)
        variance = 1.0 + psi / unsure
        everything = 1.0 + psi
        # A score is z²·quadratic + z·linear + constant, and a part of the rest that is the same for all classes.
        quadratic = 0.5 * (1.0 / everything - 1.0 / variance)
        linear = place / variance
        lengths = (place * linear).sum(1)
        constant = 0.5 * ((everything.log() - variance.log()).sum(1) - lengths)  # (classes,)
        self.evening = _evening(lengths, counts.to(at)).to(device, torch.float32)
        """(classes,): what scores gain where lengths of means are evened. It tells classes apart, and says nothing of
        how novel an example is."""
        self._quadratic = quadratic.T.to(device, torch.float32).contiguous()
        self._linear = linear.T.to(device, torch.float32).contiguous()
        self._constant = constant.to(device, torch.float32) + self.evening
        sure = 1.0 + frame.least / (1.0 + float(counts.max()) * frame.least)
        self._rest_slope = 0.5 * (1.0 / (1.0 + frame.least) - 1.0 / sure)
        beyond = self.dimensions - len(psi)
        self.rest_offset = 0.5 * beyond * (math.log1p(frame.least) - math.log(sure))
        self._seen = (1.0 / everything).to(device, torch.float32)  # (axes,)
        self._seen_constant = float(everything.log().sum())

    @classmethod
    def of(cls, known: Means, floor: float, noise: float) -> Metric:
        """In the frame that the classes themselves make."""
        frame = fit_frame(known, floor, noise)
        return cls(frame, known.class_ids, known.counts, frame.places(known.means))

    @property
    def dimensions(self) -> int:
        """Of whitened space."""
        return len(self.frame.centre)

    @property
    def noise(self) -> float:
        """Of the frame."""
        return self.frame.noise

    def bonuses(self, bonus: float) -> Tensor:
        """What classes gain for having few examples, if one without any gains `bonus`: (classes,)."""
        return (bonus * _newness(self.counts)).to(self.frame.centre.device, torch.float32)

    def coordinates(self, v: Tensor) -> Coordinates:
        """Of whitened examples v (n, dimensions)."""
        around = v - self.frame.centre
        z = around @ self.frame.axes
        return Coordinates(z, self.rest(around, z))

    def rest(self, around: Tensor, z: Tensor) -> Tensor:
        """Squared length beyond the axes of whitened examples around the centre: (n,)."""
        return (around.square().sum(1) / self.noise - z.square().sum(1)).clamp_(min=0.0)

    def scores(self, z: Tensor) -> Tensor:
        """Log-likelihood ratios along the axes: (n, classes)."""
        return torch.addmm(self._constant, z, self._linear).addmm_(z.square(), self._quadratic)

    def likeness(self, rest: Tensor) -> Tensor:
        """What directions beyond the axes add to every class's score: (n,)."""
        return rest * self._rest_slope + self.rest_offset

    def familiarity(self, best: Tensor, rest: Tensor) -> Tensor:
        """How like anything known examples are, from their best scores along the axes: (n,)."""
        return best + _BEYOND_AXES * self.likeness(rest)

    def strangeness(self, z: Tensor) -> Tensor:
        """How far examples lie from everything seen: twice the negative log-likelihood, without a class: (n,)."""
        return z.square() @ self._seen + self._seen_constant

    def distances(self, strangeness: Values, scores: Values) -> Values:
        """Squared distances to classes along the axes, in the order of their scores: (n, classes).

        Twice the negative log-likelihood per axis: to be compared within one learner only. Tensors and arrays alike, to
        the bit: a few of them are quicker in arrays.
        """
        plain = (strangeness[:, None] - 2.0 * scores) / max(len(self._seen), 1)
        # Corrections and votes may lift a score beyond any likelihood: then it nears 0, and still rises with its score.
        near = 1.0 / (2.0 * _NEAR - plain.clip(max=_NEAR)) * _NEAR**2
        distances: Values = near + (plain.clip(min=_NEAR) - _NEAR)
        return distances


def _newness(counts: Tensor) -> Tensor:
    """From 1 towards 0 as classes come to have examples: (classes,)."""
    return torch.exp(-counts / _FEW)


def _evening(lengths: Tensor, counts: Tensor) -> Tensor:
    """What classes gain if their squared lengths count for a part only: (classes,)."""
    return 0.5 * (1.0 - LENGTH) * (lengths - counts @ lengths / counts.sum())


def _axes(around: Tensor, weight: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Axes (axes, dimensions) of weighted means (classes, dimensions), and how much these vary along each."""
    weighted = around * weight.sqrt()[:, None]
    values, vectors = torch.linalg.eigh(weighted @ weighted.T)
    values, vectors = values.flip(0)[:most], vectors.flip(1)[:, :most]
    if not len(values) or float(values[0]) <= 0:
        return around[:0], values[:0]
    kept = values > _NEGLIGIBLE * values[0]
    values, vectors = values[kept], vectors[:, kept]
    return (vectors.T @ weighted) / values.sqrt()[:, None], values
