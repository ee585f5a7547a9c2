"""The losses of experiments by name, and those that are not relative errors.

A loss is a function (prediction, target, input[, weight]) -> scalar; see `operators.norms`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Count, NonNegative, Positive, require
from operators.norms import RelativeH1, RelativeL1, RelativeL2, WeightedH1, check_periodic
from operators.registry import register_loss
from pdegen.domains import Box, Domain

_Values = Float[Tensor, "batch *grid c"]


class MeanSquare:
    """Mean over the batch, the points and the channels of (p - u)².

    On a domain of measure 1 this is the mean of ‖p - u‖² in L². With quadrature weights, the mean
    over the points is weighted.
    """

    def __call__(
        self, prediction: _Values, target: _Values, a: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        return _mean((prediction - target).square(), weight)


class Huber:
    """Mean over the batch, the points and the channels of h(p - u).

    h(e) = e²/2 for |e| <= δ, and δ (|e| - δ/2) for larger errors. With quadrature weights, the mean
    over the points is weighted.

    Args:
        delta: Size δ of the errors from which the loss is linear. [the target's]

    References: P. J. Huber, Robust estimation of a location parameter, 1964.
    """

    def __init__(self, delta: Positive = 1.0) -> None:
        require(delta > 0, "delta must be > 0", delta)
        self.delta = delta

    def __call__(
        self, prediction: _Values, target: _Values, a: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        error = nn.functional.huber_loss(prediction, target, reduction="none", delta=self.delta)
        return _mean(error, weight)


class CrossEntropy:
    """Mean over the batch, the points and the channels of log(1 + e^z) - s z.

    z is the logit of the upper phase of a coefficient with two values, and s is the true share of
    this phase in a cell. The minimum over z is at 1/(1 + e^-z) = E[s | input]. With quadrature
    weights, the mean over the points is weighted. The predictor maps logits to values of the
    coefficient (`operators.transforms.PhaseValues`).

    References: T. Gneiting and A. Raftery, Strictly proper scoring rules, prediction, and
    estimation, J. Amer. Statist. Assoc. 102 (2007), example 3.
    """

    def __call__(
        self, prediction: _Values, target: _Values, a: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        of_points = nn.functional.binary_cross_entropy_with_logits
        return _mean(of_points(prediction, target, reduction="none"), weight)


class GaussianLikelihood:
    """Mean over the batch, the points and the channels of [s] ((m - u)²/(2 s²) + log s).

    The prediction has the channels (m, log s), means and deviations of a Gaussian law of u. This is
    the loss β-NLL with β = ½: the factor [s] is not differentiated, so that points with a large
    deviation count more for m than in the likelihood, β = 0. The minimum is at m = E[u | input] and
    s² = E[(u - m)² | input]. With quadrature weights, the mean over the points is weighted. The
    predictor bounds s from below (`operators.transforms.Predictor`).

    References: M. Seitzer et al., On the pitfalls of heteroscedastic uncertainty estimation with
    probabilistic neural networks, ICLR 2022.
    """

    def __call__(
        self, prediction: _Values, target: _Values, a: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        m, log = prediction.chunk(2, dim=-1)
        s = log.exp()
        return _mean(s.detach() * (((m - target) / s).square() / 2 + log), weight)


class FlowMatching(MeanSquare):
    """The mean square of v(x_t, t, a) - (x₁ - x₀), whose operator is a `FlowPosterior`.

    Args:
        members: Number of draws of a prediction, which is their mean.
        steps: Number of time steps of a draw.
    """

    def __init__(self, members: Count = 32, steps: Count = 10) -> None:
        self.members, self.steps = members, steps


class SquaredH1:
    """Mean over the batch of ‖p - u‖² + γh ‖a (Dp - Du)‖², the loss as Cao (2021) prints it.

    The norms are those of L² on a box with sides of length 1: means of squares over points and
    channels. D is the central difference along each axis, with the spacing h = 1/n for n points.
    The mean of the second term is over the inner points, or over all points of a periodic axis.

    Args:
        gamma: Weight γ of the derivative term, before the factor h. The paper has 0.1 for Burgers
            and 0.5 for Darcy. [1]
        weighted: Whether derivatives are multiplied by the first input channel a, as in the paper
            for Darcy. If not, a is 1.
        periodic: Whether differences wrap around the ends of all axes.

    References: Cao 2021, equations 1 and 2, and appendix C.1 for γ.
    """

    def __init__(
        self, gamma: NonNegative = 0.1, weighted: bool = False, periodic: bool = False
    ) -> None:
        require(gamma >= 0, "gamma must be >= 0", gamma)
        self.gamma, self.weighted, self.periodic = gamma, weighted, periodic

    def check(self, domain: Domain) -> None:
        """Raise ValueError unless the domain is a box with sides of length 1, and with periodic
        axes if differences wrap around their ends.

        The points of a coarser grid may leave out a part, or reach too far, by less than a spacing.
        """
        if not isinstance(domain, Box):
            raise ValueError(
                f"the loss squared-h1 needs a box, not a {domain.kind} domain: use mean-square"
            )
        if any(abs(grid.length - 1) >= grid.spacing for grid in domain.grids):
            sides = ", ".join(f"{grid.length:g}" for grid in domain.grids)
            raise ValueError(
                "the loss squared-h1 needs a box with sides of length 1, as in its source, not "
                f"{sides}: use mean-square"
            )
        if self.periodic:
            check_periodic("squared-h1 with periodic = true", domain)

    def __call__(self, prediction: _Values, target: _Values, a: Tensor) -> Tensor:
        error = prediction - target
        shape = tuple(target.shape[1:-1])
        slopes = [
            self._slope(error, a[..., :1], axis).square().mean()
            for axis in range(1, len(shape) + 1)
        ]
        return error.square().mean() + self.gamma / shape[0] * torch.stack(slopes).sum()

    def _slope(self, error: Tensor, a: Tensor, axis: int) -> Tensor:
        """a Dp - a Du along an axis, at the inner points of axes that are not periodic."""
        n = error.shape[axis]
        slope = (error.roll(-1, axis) - error.roll(1, axis)) * (n / 2)
        if self.weighted:
            slope = a * slope
        if self.periodic:
            return slope
        return slope[(slice(None), *[slice(1, -1)] * (error.ndim - 2))]


def _mean(error: _Values, weight: Tensor | None) -> Tensor:
    """Mean over the batch, the channels and the points, whose mean may be weighted."""
    if weight is None:
        return error.mean()
    points = error.mean(-1)
    weight = weight.expand_as(points)
    return ((weight * points).flatten(1).sum(1) / weight.flatten(1).sum(1)).mean()


register_loss("l2", RelativeL2)
register_loss("l1", RelativeL1)
register_loss("h1", RelativeH1)
register_loss("weighted-h1", WeightedH1)
register_loss("squared-h1", SquaredH1)
register_loss("mean-square", MeanSquare)
register_loss("huber", Huber)
register_loss("cross-entropy", CrossEntropy)
register_loss("gaussian", GaussianLikelihood)
register_loss("flow", FlowMatching)
