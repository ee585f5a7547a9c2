"""Norms of functions, one value for each sample, and losses (prediction, target, input, weight).

A weight is that of the quadrature at each point, shape (*grid) or (batch, *grid): 0 at padding.
Without one all points count alike.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from pdegen.domains import Box, Domain

Function = Float[Tensor, "batch n c"]


def relative_l2(
    prediction: Float[Tensor, "batch ..."], target: Float[Tensor, "batch ..."]
) -> Float[Tensor, " batch"]:
    """‖p - u‖ / ‖u‖ per sample. The quadrature weight cancels on a uniform grid.

    >>> u = torch.tensor([[3.0, 4.0]])
    >>> relative_l2(1.1 * u, u)
    tensor([0.1000])
    """
    return torch.linalg.vector_norm((prediction - target).flatten(1), dim=1) / (
        torch.linalg.vector_norm(target.flatten(1), dim=1)
    )


def relative_error(
    prediction: Float[Tensor, "batch *grid c"],
    target: Float[Tensor, "batch *grid c"],
    weight: Tensor | None = None,
    order: int = 2,
    parts: int = 1,
) -> Float[Tensor, "batch parts"]:
    """‖p - u‖ / ‖u‖ in L¹ or L² of each of `parts` equal runs of channels.

    With `parts` 1 that is the error of all channels as a block; with as many parts as channels,
    that of each channel; with the number of times, that of each step, as channels go by time first.
    Nothing is relative to a run that is 0: nan.

    >>> u = torch.tensor([[[3.0, 0.0, 1.0, 1.0], [0.0, 4.0, 1.0, 1.0]]])  # two points, 4 channels
    >>> relative_error(u + torch.tensor([1.0, 0, 0, 0]), u, parts=2)
    tensor([[0.2828, 0.0000]])
    >>> relative_error(1.5 * u, u, torch.tensor([1.0, 0.0]), order=1)
    tensor([[0.5000]])
    """
    if weight is None and parts == 1 and order == 2:
        error = relative_l2(prediction, target)
        return error.where(target.flatten(1).any(dim=1), math.nan)[:, None]

    def norm(v: Tensor) -> Tensor:
        if weight is not None:
            v = v * (weight if order == 1 else weight.sqrt())[..., None]
        runs = v.reshape(len(v), -1, parts, v.shape[-1] // parts)
        return torch.linalg.vector_norm(runs, ord=order, dim=(1, 3))

    size = norm(target)
    return norm(prediction - target) / size.where(size > 0, math.nan)


def central_difference(u: Function, spacing: float) -> Function:
    """(u_{j+1} - u_{j-1}) / 2h on a periodic grid, along the axis next to the channels."""
    return (u.roll(-1, dims=1) - u.roll(1, dims=1)) / (2 * spacing)


class RelativeL2:
    """Mean over the batch of ‖p - u‖ / ‖u‖ in L²."""

    order = 2

    def __call__(
        self, prediction: Tensor, target: Tensor, a: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        return relative_error(prediction, target, weight, self.order).mean()


class RelativeL1(RelativeL2):
    """Mean over the batch of ‖p - u‖ / ‖u‖ in L¹."""

    order = 1


class RelativeH1:
    """Mean over the batch of ‖p - u‖/‖u‖ + √(γh) ‖Dp - Du‖/‖Du‖, D the central difference.

    The unsquared form of the published code (Cao 2021 prints the squared one, equations 1 and 2).

    Args:
        gamma: Weight γ of the derivative term; it is scaled by the spacing h = 1/n.
        periodic: True takes differences across the ends, as is right for periodic data.
            False counts, as published, the derivative error at interior points only and the
            reference derivative at all of them. In the published code Du comes from the 8192
            points of its data, at the two ends from the neighbours that a repeated end point would
            have; here it is the periodic difference of the target's own grid.
    """

    def __init__(self, gamma: float = 0.1, periodic: bool = True) -> None:
        if gamma < 0:
            raise ValueError(f"gamma must be >= 0, got {gamma}")
        self.gamma = gamma
        self.periodic = periodic

    def check(self, domain: Domain) -> None:
        """Raise ValueError on a domain that has no central differences along one axis."""
        _check_box("h1", domain, 1)

    def __call__(self, prediction: Function, target: Function, a: Tensor) -> Tensor:
        h = 1 / target.shape[1]
        du = central_difference(target, h)
        error = central_difference(prediction, h) - du
        if not self.periodic:
            error = error[:, 1:-1]
        weight = math.sqrt(self.gamma * h)
        slope = torch.linalg.vector_norm(error.flatten(1), dim=1) / (
            torch.linalg.vector_norm(du.flatten(1), dim=1)
        )
        return (relative_l2(prediction, target) + weight * slope).mean()


class WeightedH1:
    """Mean over the batch of ‖p - u‖/‖u‖ + √(γh) ‖a^½ (Dp - Du)‖/‖a^½ Du‖ on the square.

    D is the central difference at the inner points, for target and prediction alike, so that the
    term can vanish; a is the coefficient, so that its norm is the energy of -div(a grad u) = f.

    Args:
        gamma: Weight γ of the derivative term, scaled by h = 1/n, n the points of the first axis.
            That is the spacing up to the ends' (3/421 for every third of 421 cells, n = 141),
            which the quotient itself does not depend on.
        published: Use instead the term of the published code, √(γh N/(2M + 10^-10)) with
            N = mean |a (Dp - Du)|² over the inner points, M = mean a |Du|² over all points and both
            components, u continued by 0. (a² in N, but a in M; the factor 2 in M alone.) There
            Du is the difference of the finest grid, with which the term cannot vanish; here it
            is that of the target's own grid.

    References: Cao 2021, section 5.2.
    """

    def __init__(self, gamma: float = 0.5, published: bool = False) -> None:
        if gamma < 0:
            raise ValueError(f"gamma must be >= 0, got {gamma}")
        self.gamma, self.published = gamma, published

    def check(self, domain: Domain) -> None:
        """Raise ValueError on a domain that has no central differences in the plane."""
        _check_box("weighted-h1", domain, 2)

    def __call__(
        self,
        prediction: Float[Tensor, "batch n1 n2 1"],
        target: Float[Tensor, "batch n1 n2 1"],
        a: Float[Tensor, "batch n1 n2 c_in"],
    ) -> Tensor:
        n, a = target.shape[1], a[..., :1]  # after the coefficient come numbers of the sample
        error, slope = gradient(prediction - target), gradient(target)
        inner = a[:, 1:-1, 1:-1]
        if self.published:
            everywhere = nn.functional.pad(target, (0, 0, 1, 1, 1, 1))
            weighted = (inner * error).flatten(1)
            lower = (a * gradient(everywhere).square()).flatten(1).mean(1) * n**2
            # a norm and no square root of N, whose derivative at 0 is not finite
            upper = torch.linalg.vector_norm(weighted, dim=1) * n / math.sqrt(weighted.shape[1])
            ratio = upper / (2 * lower + 1e-10).sqrt()
        else:
            weight = inner.sqrt()
            ratio = torch.linalg.vector_norm((weight * error).flatten(1), dim=1) / (
                torch.linalg.vector_norm((weight * slope).flatten(1), dim=1)
            )
        return (relative_l2(prediction, target) + math.sqrt(self.gamma / n) * ratio).mean()


def gradient(u: Float[Tensor, "batch n1 n2 1"]) -> Float[Tensor, "batch m1 m2 2"]:
    """h ∂u/∂x and h ∂u/∂y at the inner points, by central differences."""
    x = u[:, 2:, 1:-1] - u[:, :-2, 1:-1]
    y = u[:, 1:-1, 2:] - u[:, 1:-1, :-2]
    return torch.cat([x, y], dim=-1) / 2


def _check_box(loss: str, domain: Domain, dim: int) -> None:
    if domain.dim != dim:
        plural = "dimension" if dim == 1 else "dimensions"
        raise ValueError(f"the loss {loss} needs {dim} {plural}, the data have {domain.dim}")
    if not isinstance(domain, Box):
        raise ValueError(f"the loss {loss} needs a box, not a {domain.kind} domain: use l2 or l1")


def defined(errors: Iterable[float]) -> list[float]:
    """The errors that exist.

    >>> defined([0.1, float("nan"), float("inf")])
    [0.1, inf]
    """
    return [float(error) for error in errors if not math.isnan(error)]


def over_defined(statistic: Callable[[list[float]], float], errors: Iterable[float]) -> float:
    """A statistic of the errors that exist; nan where none does.

    >>> over_defined(max, [0.1, float("nan"), 0.3]), over_defined(max, [float("nan")])
    (0.3, nan)
    """
    kept = defined(errors)
    return float(statistic(kept)) if kept else math.nan


def by_column(
    statistic: Callable[[list[float]], float], errors: Float[np.ndarray, "samples columns"]
) -> Float[np.ndarray, " columns"]:
    """`over_defined` of each column, such as that of a time."""
    return np.array([over_defined(statistic, column) for column in errors.T])


def mean_defined(errors: Float[Tensor, " samples"]) -> float:
    """Mean of the errors that exist; nan where none does."""
    return float(errors[~errors.isnan()].mean())


def undefined(samples: Sequence[int], errors: Sequence[float]) -> list[int]:
    """The numbers of the samples whose error does not exist.

    >>> undefined([20, 21, 22], [0.1, float("nan"), 0.3])
    [21]
    """
    return [int(n) for n, error in zip(samples, errors, strict=True) if math.isnan(error)]


def rising(errors: Iterable[float]) -> list[int]:
    """Places of the errors that exist, from the smallest to the largest.

    >>> rising([0.3, float("nan"), 0.1])
    [2, 0]
    """
    values = np.asarray(list(errors), float)
    order = np.argsort(values, kind="stable").tolist()  # nan comes last
    return order[: len(defined(values))]


def left_out(samples: Sequence[int]) -> str:
    """A sentence on samples that have no relative error; empty where there are none.

    >>> left_out([21])
    'Sample 21 has no relative error, as its target is 0; means leave it out.'
    >>> left_out(range(8))
    '8 samples have no relative error, as their targets are 0; means leave them out: 0, 1, 2, ...'
    """
    if not samples:
        return ""
    if len(samples) == 1:
        return f"Sample {samples[0]} has no relative error, as its target is 0; means leave it out."
    few = ", ".join(map(str, samples[:3])) + (", ..." if len(samples) > 3 else "")
    return (
        f"{len(samples)} samples have no relative error, as their targets are 0; means leave them "
        f"out: {few}"
    )
