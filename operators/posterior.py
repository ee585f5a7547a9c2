"""Draws of a posterior by a flow: an operator learns the velocity that carries noise to draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing

import torch
from jaxtyping import Float
from torch import Tensor

from operators.base import Operator, generator
from operators.data import Samples
from operators.nn.resample import interpolation
from operators.transforms import Extent, Normalizer, Predictor, axes_of

Velocity = Callable[[Tensor, float], Tensor]

_WHITE = 0.1  # deviation of the white part of the source
_TOGETHER = 16  # draws of one sample that an operator computes in a batch, whatever their number
_TIMES = 8  # times t of each sample in the loss of selection samples
_SELECTION = 1  # key of the random numbers of this loss; 0 is that of draws


def transported(velocity: Velocity, x: Tensor, steps: int) -> Tensor:
    """x(1) of dx/dt = v(x, t) from x(0) = x, by equal steps h of Heun's method.

    x_{k+1} = x_k + h/2 (v_k + v(x_k + h v_k, t_{k+1})), of order 2.

    >>> exact, x = math.e, torch.ones(1, dtype=torch.float64)
    >>> [round(float(exact - transported(lambda x, t: x, x, n)) * n**2, 1) for n in (50, 100)]
    [0.4, 0.4]
    """
    h = 1 / steps
    for k in range(steps):
        first = velocity(x, k * h)
        x = x + h / 2 * (first + velocity(x + h * first, (k + 1) * h))
    return x


class FlowPosterior(Predictor):
    """Draws of the conditional law of u given data a. A call gives their mean.

    With normalised targets x₁, a draw is x(1) of dx/dt = v(x, t, a), x(0) = x₀, where x₀ is a draw
    of a Gaussian field. The velocity v minimises E‖v(x_t, t, a) - (x₁ - x₀)‖² with x_t =
    (1 - t) x₀ + t x₁ and t uniform in (0, 1); at the minimum, x(1) has the law of x₁ given a. The
    covariance of x₀ is that of the training targets, as far as it is diagonal in the cosines of the
    grid, plus 0.01 of white noise. The field is thus defined as the grid is refined.

    The operator has the input channels (x_t, a, t), all on one grid: that of the inputs or that of
    the targets, whichever has more points. Functions are interpolated linearly to it. All samples
    share their points. Known boundary values are not imposed.

    Args:
        operator: The velocity v. It has 1 + c_out input channels more than a.
        input, target: Normalisers of inputs and targets.
        spectrum: Root mean squares of `cosine_coefficients` of normalised targets, shape
            (*modes, c_out), as `adapt` computes them.
        extent: The box whose points are rescaled to the unit box; None for no rescaling.
        members: Number of draws of a mean.
        steps: Number of time steps of `transported`.

    References: Y. Lipman et al., Flow matching for generative modeling, arXiv:2210.02747 (2022),
    equation 9; A. Tong et al., Improving and generalizing flow-based generative models with
    minibatch optimal transport, arXiv:2302.00482 (2023), section 3.2.
    """

    spectrum: Tensor

    def __init__(
        self,
        operator: Operator,
        input: Normalizer,
        target: Normalizer,
        spectrum: Float[Tensor, "*modes c_out"],
        extent: Extent | None = None,
        members: int = 32,
        steps: int = 10,
    ) -> None:
        super().__init__(operator, input, target, extent=extent)
        self.register_buffer("spectrum", spectrum)
        self.members, self.steps = members, steps

    @property
    def in_channels(self) -> int:
        return self.operator.in_channels - self.operator.out_channels - 1

    def adapt(self, pairs: Samples) -> None:
        """Compute the spectrum of the training targets."""
        blocks = [pairs.targets] if isinstance(pairs.targets, Tensor) else pairs.targets
        total, count, y = torch.zeros((), dtype=torch.float64), 0, pairs.target_points
        for block in blocks:
            total = total + cosine_coefficients(self.target(block, y)).double().square().sum(0)
            count += len(block)
        self.spectrum.copy_((total / count).sqrt())

    def on(
        self, x: Tensor | None, y: Tensor | None = None, raw: bool = False
    ) -> Callable[..., Tensor]:
        """The function (a) -> means of draws, whose x₀ are the same for all samples."""
        at = self.at(x, y)

        def mean(a: Tensor, *_: object, **__: object) -> Tensor:
            return torch.stack([at.drawn(v, 0, self.members, 0).mean(0) for v in a])

        return mean

    def at(self, x: Tensor | None, y: Tensor | None = None) -> GridFlow:
        """The flow for inputs at x and targets at y, which is x if None.

        Raises ValueError if the points are not those of a grid that all samples share.
        """
        return GridFlow(self, x, y)

    @torch.no_grad()
    def draw(
        self,
        a: Float[Tensor, "batch *grid c_in"],
        x: Float[Tensor, "*grid dim"] | None,
        y: Float[Tensor, "*target_grid dim"] | None,
        samples: Sequence[int],
        members: int,
        seed: int = 0,
    ) -> Float[Tensor, "members batch *target_grid c_out"]:
        """Draws of the posterior. Member k of sample i is a function of (seed, i, k) and its data:
        it does not depend on the batch and on the number of members, bit for bit.

        Args:
            samples: Number i of each sample.
            members: Number of draws of each sample.
            seed: Seed of the x₀.
        """
        at = self.at(x, y)
        rows = zip(a, samples, strict=True)
        return torch.stack([at.drawn(v, i, members, seed) for v, i in rows], dim=1)

    @torch.no_grad()
    def losses(self, pairs: Samples) -> Float[Tensor, " samples"]:
        """The loss of every sample in evaluation mode, in float64: mean squares over points,
        channels and `_TIMES` equidistant times. The x₀ are functions of sample and time."""
        at, training, found = self.at(pairs.x, pairs.y), self.training, list[Tensor]()
        self.eval()
        t = (torch.arange(_TIMES, device=pairs.device) + 0.5) / _TIMES
        with closing(pairs.in_order(1)) as batches:
            for number, batch in zip(pairs.ids.tolist(), batches, strict=True):
                x0 = at.source([(_SELECTION, number, k) for k in range(_TIMES)])
                u = batch.u.expand_as(x0)
                v, velocity = at.matched(batch.a.expand(len(t), *batch.a.shape[1:]), u, t, x0)
                found.append((v - velocity).double().square().mean()[None])
        self.train(training)
        return torch.cat(found)


class GridFlow:
    """The velocity of a `FlowPosterior` for inputs at points x and targets at points y."""

    def __init__(self, of: FlowPosterior, x: Tensor | None, y: Tensor | None) -> None:
        dim = of.operator.dim
        if x is None or any(v is not None and v.ndim != dim + 1 for v in (x, y)):
            raise ValueError("the loss flow needs points of a grid that all samples share")
        to = x if y is None else y
        place = to if math.prod(to.shape) > math.prod(x.shape) else x
        self.of, self.shape = of, (*to.shape[:-1], of.operator.out_channels)
        # matrices of linear interpolation along each axis; none between the same points
        self.inputs, self.states = (
            []
            if v is place
            else [interpolation(*axes) for axes in zip(axes_of(v), axes_of(place), strict=True)]
            for v in (x, to)
        )
        self.bases = [
            _cosines(n, m) for n, m in zip(to.shape, of.spectrum.shape[:-1], strict=False)
        ]
        self.mean, self.std = of.input.at(x)
        self.target_mean, self.target_std = of.target.at(to)
        points = (v if of.extent is None else of.extent(v) for v in (place, to))
        self.x, self.y = points
        self.other = to is not place

    def field(self, modes: Tensor, white: Tensor) -> Tensor:
        """The Gaussian field x₀ of standard normals, those of modes and those of points."""
        coefficients = modes * self.of.spectrum
        return _along(coefficients, self.bases) + _WHITE * white

    def source(self, keys: Sequence[tuple[int, ...]]) -> Float[Tensor, "batch *target_grid c_out"]:
        """The field x₀ of each key."""
        shapes = tuple(self.of.spectrum.shape), self.shape
        randoms = [generator(*key) for key in keys]
        modes, white = (
            torch.stack([torch.randn(shape, generator=random) for random in randoms])
            for shape in shapes
        )
        return self.field(*(v.to(self.of.spectrum) for v in (modes, white)))

    def data(self, a: Tensor) -> Tensor:
        """Normalised inputs on the grid of the operator."""
        return _along((self.of.input.raised(a) - self.mean) / self.std, self.inputs)

    def velocity(self, state: Tensor, data: Tensor, t: Tensor) -> Tensor:
        """v(x_t, t, a), with a as `data` gives it."""
        z = torch.cat([_along(state, self.states), data], dim=-1)
        times = t.view(-1, *[1] * (z.ndim - 1)).expand(*z.shape[:-1], 1)
        return self.of.operator(torch.cat([z, times], -1), self.x, self.y if self.other else None)

    def matched(
        self, a: Tensor, u: Tensor, t: Tensor | None = None, x0: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """v(x_t, t, a) and x₁ - x₀. By default, t and x₀ are random."""
        x1 = (u - self.target_mean) / self.target_std
        if t is None:
            t = torch.rand(len(u), device=u.device)
        if x0 is None:
            modes = torch.randn(len(u), *self.of.spectrum.shape, device=u.device)
            x0 = self.field(modes, torch.randn_like(u))
        s = t.view(-1, *[1] * (u.ndim - 1))
        return self.velocity((1 - s) * x0 + s * x1, self.data(a), t), x1 - x0

    def drawn(
        self, a: Float[Tensor, "*grid c_in"], sample: int, members: int, seed: int
    ) -> Float[Tensor, "members *target_grid c_out"]:
        """Draws of one sample; see `FlowPosterior.draw`."""
        data, draws = self.data(a[None]), list[Tensor]()
        data = data.expand(_TOGETHER, *data.shape[1:])

        def velocity(state: Tensor, t: float) -> Tensor:
            return self.velocity(state, data, torch.full((_TOGETHER,), t, device=a.device))

        for first in range(0, members, _TOGETHER):
            # always a full batch: the bits of products depend on its size
            x0 = self.source([(0, seed, sample, k) for k in range(first, first + _TOGETHER)])
            draws.append(transported(velocity, x0, self.of.steps))
        return torch.cat(draws)[:members] * self.target_std + self.target_mean


def _along(v: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Apply a matrix along each axis of the grid. v: (batch, *grid, c)."""
    for axis, matrix in enumerate(matrices, 1):
        v = (v.movedim(axis, -1) @ matrix.T.to(v)).movedim(-1, axis)
    return v


def _cosines(n: int, modes: int) -> Float[Tensor, "n modes"]:
    """φ_k(x_j) at x_j = (j + ½)/n: φ_0 = 1, φ_k = √2 cos πkx; 0 for the k that n points lack."""
    k = torch.arange(modes, dtype=torch.float64)
    x = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    values = (math.pi * x[:, None] * k).cos() * torch.where(k > 0, math.sqrt(2), 1.0) * (k < n)
    return values.float()


def cosine_coefficients(u: Float[Tensor, "batch *grid c"]) -> Float[Tensor, "batch *modes c"]:
    """Coefficients of the cosines along each axis, as many as points; their squares sum to the mean
    square of u."""
    return _along(u, [_cosines(n, n).T / n for n in u.shape[1:-1]])
