"""Relative errors of each sample, and losses.

A loss is a function of (prediction, target, input, weight). The tensor `weight` contains the
quadrature weight of each point, 0 at padding; its shape is (*grid) or (batch, *grid). None stands
for equal weights.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import NonNegative
from pdegen.domains import Box, Domain

Function = Float[Tensor, "batch n c"]


def relative_l2(
    prediction: Float[Tensor, "batch ..."], target: Float[Tensor, "batch ..."]
) -> Float[Tensor, " batch"]:
    """‖p - u‖ / ‖u‖ in L² for each sample. On a uniform grid, quadrature weights cancel.

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
    order: float = 2,
    parts: int = 1,
) -> Float[Tensor, "batch parts"]:
    """‖p - u‖ / ‖u‖ in Lᵖ, p = `order`, for each of `parts` equal groups of consecutive channels.

    With one group, the error is that of all channels together. With as many groups as channels, it
    is the error of each channel. With as many groups as times, it is the error at each time,
    because channels are ordered by time. The error is nan if the target of a group is 0. With
    p = ∞, points of weight 0 are left out.

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
        if weight is not None:  # (Σ w |v|ᵖ)^(1/p)
            root = weight.sqrt() if order == 2 else weight ** (1 / order)
            v = v * (weight > 0 if math.isinf(order) else root)[..., None]
        groups = v.reshape(len(v), -1, parts, v.shape[-1] // parts)
        return torch.linalg.vector_norm(groups, ord=order, dim=(1, 3))

    size = norm(target)
    return norm(prediction - target) / size.where(size > 0, math.nan)


def central_difference(u: Function, spacing: float) -> Function:
    """(u_{j+1} - u_{j-1}) / 2h on a periodic grid, along axis 1."""
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
    """Mean over the batch of ‖p - u‖/‖u‖ + √(γh) ‖Dp - Du‖/‖Du‖ with central differences D.

    As in the code published with Cao (2021), the norms are not squared. They are squared in
    equations 1 and 2 of the paper.

    Args:
        gamma: Weight γ of the derivative term. The term is also scaled by the spacing h = 1/n. [1]
        periodic: If True, differences are periodic, and both norms of derivatives are over all
            points. If False, ‖Dp - Du‖ is over interior points and ‖Du‖ over all points, as
            published. In the latter norm, Du is the periodic difference on the grid of the target.
            The published code computes it from the 8192 points of its data, with a repeated end
            point.
    """

    def __init__(self, gamma: NonNegative = 0.1, periodic: bool = True) -> None:
        if gamma < 0:
            raise ValueError(f"gamma must be >= 0, got {gamma}")
        self.gamma = gamma
        self.periodic = periodic

    def check(self, domain: Domain) -> None:
        """Raise ValueError unless the domain is a circle: a box with one periodic axis."""
        check_periodic("h1", _box("h1", domain, 1))

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

    D is the central difference at the inner points, for both target and prediction. The derivative
    term of an exact prediction is therefore 0. If the input a is the coefficient of
    -div(a grad u) = f, ‖a^½ Du‖ is the discrete energy norm.

    Args:
        gamma: Weight γ of the derivative term. The term is also scaled by h = 1/n, with n points
            along the first axis. The true spacing is slightly different: every third of 421 cells
            has the spacing 3/421, but n = 141. The spacing cancels in the quotient. [1]
        published: Use the derivative term of the published code, √(γh N/(2M + 10^-10)). Here
            N is the mean of |a (Dp - Du)|² over the inner points, and M is the mean of a |Du|²
            over all points and both components, with u extended by 0. The code has a² in N, a in
            M, and a factor 2 only in M. It computes Du on the finest grid, so that the term of an
            exact prediction is not 0. Here Du is computed on the grid of the target.

    References: Cao 2021, section 5.2.
    """

    def __init__(self, gamma: NonNegative = 0.5, published: bool = False) -> None:
        if gamma < 0:
            raise ValueError(f"gamma must be >= 0, got {gamma}")
        self.gamma, self.published = gamma, published

    def check(self, domain: Domain) -> None:
        """Raise ValueError unless the domain is a box in the plane with one spacing for both axes.

        Otherwise the two components of the gradient would have different weights.
        """
        box = _box("weighted-h1", domain, 2)
        if not has_one_spacing(box):
            h = " and ".join(f"{spacing:.5g}" for spacing in box.spacing)
            raise ValueError(
                f"the loss weighted-h1 needs the same spacing along both axes, got {h}: "
                "use l2 or l1"
            )

    def __call__(
        self,
        prediction: Float[Tensor, "batch n1 n2 1"],
        target: Float[Tensor, "batch n1 n2 1"],
        a: Float[Tensor, "batch n1 n2 c_in"],
    ) -> Tensor:
        n, a = target.shape[1], a[..., :1]  # later channels are parameters of the sample
        error, slope = gradient(prediction - target), gradient(target)
        inner = a[:, 1:-1, 1:-1]
        if self.published:
            extended = nn.functional.pad(target, (0, 0, 1, 1, 1, 1))
            weighted = (inner * error).flatten(1)
            lower = (a * gradient(extended).square()).flatten(1).mean(1) * n**2
            # a norm instead of the square root of N, whose derivative at 0 is infinite
            upper = torch.linalg.vector_norm(weighted, dim=1) * n / math.sqrt(weighted.shape[1])
            ratio = upper / (2 * lower + 1e-10).sqrt()
        else:
            weight = inner.sqrt()
            ratio = torch.linalg.vector_norm((weight * error).flatten(1), dim=1) / (
                torch.linalg.vector_norm((weight * slope).flatten(1), dim=1)
            )
        return (relative_l2(prediction, target) + math.sqrt(self.gamma / n) * ratio).mean()


def gradient(u: Float[Tensor, "batch n1 n2 1"]) -> Float[Tensor, "batch m1 m2 2"]:
    """Central differences for h ∂u/∂x and h ∂u/∂y at the inner points, as two channels."""
    x = u[:, 2:, 1:-1] - u[:, :-2, 1:-1]
    y = u[:, 1:-1, 2:] - u[:, 1:-1, :-2]
    return torch.cat([x, y], dim=-1) / 2


def _box(loss: str, domain: Domain, dim: int) -> Box:
    """The domain; raises ValueError unless it is a box of dimension `dim`."""
    if domain.dim != dim:
        plural = "dimension" if dim == 1 else "dimensions"
        raise ValueError(f"the loss {loss} needs {dim} {plural}, the data have {domain.dim}")
    if not isinstance(domain, Box):
        raise ValueError(f"the loss {loss} needs a box, not a {domain.kind} domain: use l2 or l1")
    return domain


def has_one_spacing(box: Box) -> bool:
    """Whether the spacings of all axes are equal, up to rounded coordinates of imported files."""
    return max(box.spacing) <= (1 + 1e-3) * min(box.spacing)


def check_periodic(loss: str, domain: Box) -> None:
    """Raise ValueError unless differences of functions may wrap around the ends of all axes."""
    if domain.grid != "periodic":
        kinds = " and ".join(dict.fromkeys(domain.kinds))
        raise ValueError(f"the loss {loss} needs periodic axes, the data have {kinds} ones")


def defined(errors: Iterable[float]) -> list[float]:
    """The errors that are not nan.

    >>> defined([0.1, float("nan"), float("inf")])
    [0.1, inf]
    """
    return [float(error) for error in errors if not math.isnan(error)]


def over_defined(statistic: Callable[[list[float]], float], errors: Iterable[float]) -> float:
    """A statistic of the errors that are not nan; nan if all are nan.

    >>> over_defined(max, [0.1, float("nan"), 0.3]), over_defined(max, [float("nan")])
    (0.3, nan)
    """
    values = defined(errors)
    return float(statistic(values)) if values else math.nan


def by_column(
    statistic: Callable[[list[float]], float], errors: Float[np.ndarray, "samples columns"]
) -> Float[np.ndarray, " columns"]:
    """Apply `over_defined` to each column of errors, for example to the errors at each time."""
    return np.array([over_defined(statistic, column) for column in errors.T])


def mean_defined(errors: Float[Tensor, " samples"]) -> float:
    """Mean of the errors that are not nan; nan if all are nan."""
    return float(errors[~errors.isnan()].mean())


def undefined(samples: Sequence[int], errors: Sequence[float]) -> list[int]:
    """Numbers of the samples whose error is nan.

    >>> undefined([20, 21, 22], [0.1, float("nan"), 0.3])
    [21]
    """
    return [int(n) for n, error in zip(samples, errors, strict=True) if math.isnan(error)]


def rising(errors: Iterable[float]) -> list[int]:
    """Indices of the errors that are not nan, sorted from the smallest error to the largest.

    >>> rising([0.3, float("nan"), 0.1])
    [2, 0]
    """
    values = np.asarray(list(errors), float)
    order = np.argsort(values, kind="stable").tolist()  # nan comes last
    return order[: len(defined(values))]


def remarks(samples: Sequence[int], errors: Sequence[float]) -> list[str]:
    """Sentences about samples without a relative error, and about a sample that has most of the
    sum of all errors, because its target is almost 0 or it is predicted badly.

    >>> remarks([20, 21, 22], [0.1, float("nan"), 0.3])
    ['Sample 21 has no relative error, because its target is 0. Means leave it out.']
    >>> remarks(range(4), [0.1, 0.2, 8e22, 0.1])[0][:60]
    'Sample 2 has 100 % of the sum of the errors of 4 samples: it'
    """
    missing = undefined(samples, errors)
    sentences = [_left_out(missing)] if missing else []
    known = defined(errors)
    total, largest = math.fsum(known), max(known, default=0.0)
    if len(known) >= 4 and math.isfinite(total) and largest > total / 2:
        sample = next(n for n, e in zip(samples, errors, strict=True) if e == largest)
        sentences.append(
            f"Sample {sample} has {100 * largest / total:.3g} % of the sum of the errors of "
            f"{len(known)} samples: its error is {largest:.3g}, the median is "
            f"{float(np.median(known)):.3g}. The mean describes this sample alone; a target close "
            "to 0 makes a relative error large."
        )
    return sentences


def _left_out(samples: Sequence[int]) -> str:
    """A sentence about samples without a relative error.

    >>> _left_out(range(8))
    '8 samples have no relative error, because their target is 0. Means leave out 0, 1, 2, ...'
    """
    if len(samples) == 1:
        (sample,) = samples
        return (
            f"Sample {sample} has no relative error, because its target is 0. Means leave it out."
        )
    few = ", ".join(map(str, samples[:3])) + (", ..." if len(samples) > 3 else "")
    return (
        f"{len(samples)} samples have no relative error, because their target is 0. "
        f"Means leave out {few}"
    )
