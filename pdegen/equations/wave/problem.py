"""Waves of variable speed on the torus: the map from u(0) and the speed c to later values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Check,
    Distinct,
    Statistic,
    StoreChecks,
    Values,
    binomial,
    stated_error,
)
from pdegen.checks.gaussian import GaussianCheck, torus_modes
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.base import Problem, Times, check_size, equation, with_rounding
from pdegen.numerics.spectral import Torus
from pdegen.sampling.gaussian import TorusGaussianField
from pdegen.schema import Coefficient, Count, InverseLength, Size, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times

if TYPE_CHECKING:
    from pdegen.equations.wave.solver import WaveMarch

# error of the finer solution over its distance from the coarser one: 1/(2^4 - 1) at order 4; at
# jumps of c, 0.24 to 0.44 are measured on 32 x 32 points
_SHARE = {"smooth": 1 / 15, "layers": 0.35}
_DRIFT = 1e-9  # largest relative change of the energy
_SPEED_STRIDE = 2**32  # offset of sample numbers in the random streams of the speed


class WaveField(Strict):
    """g ~ N(0, sigma²(-Δ + tau²)^(-alpha)) on the torus of side 1, without its mean.

    Args:
        sigma: Scale σ of the covariance operator. [length^(1 - alpha)]
        tau: Inverse correlation length τ. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Largest |k| of the wave vectors k of the modes, independent of the grid.
    """

    sigma: Size
    tau: InverseLength
    alpha: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    modes: Count

    def build(self) -> TorusGaussianField:
        return TorusGaussianField(self.sigma, self.tau, self.alpha, self.modes)

    @property
    def sentence(self) -> str:
        return (
            f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on the torus, "
            f"without its mean, {self.modes} modes"
        )


class Speed(WaveField):
    """The speed c between `low` and `high`, as a function of a Gaussian field g.

    Args:
        law: "smooth": c = low + (high - low)/(1 + e^(-g)); "layers": high where g >= 0, else low.
        low, high: The bounds of c. [length/time]
    """

    law: Literal["smooth", "layers"]
    low: Coefficient
    high: Coefficient

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"speed.low must be below speed.high, got {self.low} and {self.high}")
        return self

    def of(self, g: np.ndarray) -> np.ndarray:
        if self.law == "layers":
            return np.where(g >= 0, self.high, self.low)
        return self.low + (self.high - self.low) / (1 + np.exp(-g))

    def check(self, n: int) -> Check:
        """The check of the law of g, from stored speeds."""
        field = self.build()
        if self.law == "layers":
            return _Layers(field, (self.low + self.high) / 2, n)
        # the logistic function is flattest, and rounding of g largest, at six deviations of g
        size = 1 + math.exp(6 * math.sqrt(field.pointwise_variance))
        size *= self.high / (self.high - self.low)

        def inverse(c: np.ndarray) -> np.ndarray:
            share = (c.astype(np.float64) - self.low) / (self.high - self.low)
            return (np.log(share) - np.log1p(-share)) / size

        modes = torus_modes(field, n)
        return GaussianCheck(
            "c", inverse, replace(modes, variances=modes.variances / size**2),
            np.full((n, n), field.pointwise_variance / size**2), relative=False,
        )  # fmt: skip

    @property
    def sentence(self) -> str:
        law = {"smooth": "{low} + ({high} - {low})/(1 + exp(-g))",
               "layers": "{high} where g >= 0, {low} where g < 0"}[self.law]  # fmt: skip
        return f"{law.format(low=self.low, high=self.high)}, g = {super().sentence}"


class _Layers(Check):
    """The pairs of points at distances 0, 1, 2, 4, ... on which g differs in sign.

    g >= 0 at a point has the probability 1/2. The signs at two points differ with the probability
    arccos(ρ)/π, where ρ is their correlation (Sheppard's arcsine law).
    """

    subject, variable = "the layers", "c"

    def __init__(self, field: TorusGaussianField, middle: float, n: int) -> None:
        self._middle, self._points = middle, np.arange(0, n, max(1, n // 4))
        self._lags = [1 << k for k in range((n // 2).bit_length())]
        k, weights = field.wave_vectors[:, 0], field.mode_stds**2
        rho = [weights @ np.cos(2 * np.pi * k * lag / n) / weights.sum() for lag in self._lags]
        self._expected = np.r_[0.5, np.arccos(np.clip(rho, -1, 1)) / np.pi]
        self._counts, self._samples = np.zeros((len(rho) + 1, self._points.size**2), int), 0

    def add(self, numbers: np.ndarray, values: Values) -> None:
        above, at = values["c"] > self._middle, np.ix_(self._points, self._points)
        self._samples += len(above)
        first = above[:, *at]
        self._counts[0] += first.sum(axis=0).ravel()
        for row, lag in enumerate(self._lags, 1):
            self._counts[row] += (first != np.roll(above, -lag, axis=1)[:, *at]).sum(axis=0).ravel()

    def statistics(self) -> Iterator[Statistic]:
        names = ["the share above", *(f"the share of changes over {lag}" for lag in self._lags)]
        for name, p, counts in zip(names, self._expected.tolist(), self._counts, strict=True):
            for point, count in enumerate(counts.tolist() if self._samples else []):
                yield Statistic(
                    f"{name} at point {point}", count / self._samples, p,
                    binomial(count, self._samples, p),
                )  # fmt: skip


class ModifiedEquation(Strict):
    """Finite differences of order 4 in space and time (`solver.WaveMarch`) on twice the points."""

    method: Literal["modified-equation"]


@equation
class WaveEquation(Problem):
    """uₜₜ = c(x)²Δu on the torus (0, 1)², uₜ(0) = 0: the map (u(0), c) -> u(times).

    The labels are solved on points twice as fine as the output. Each sample states the error
    that follows from the distance to the solution on the points of the output: it is 1/15 of the
    distance if c is smooth, and 0.35 of it if c jumps, where the order is 1 to 2.

    Args:
        times: Times of the output, multiples of the first one. [time]
        resolution: Points of the output along each axis.
        initial: Distribution of the Gaussian field u(0).
        speed: Distribution of the speed c.
        solver: The numerical method.
    """

    largest_batch: ClassVar[int] = 4
    compiled: ClassVar[bool] = True

    equation: Literal["wave"]
    times: Times
    resolution: Annotated[Count, Field(ge=8, multiple_of=2)]
    initial: WaveField
    speed: Speed
    solver: ModifiedEquation

    @model_validator(mode="after")
    def _fits(self) -> Self:
        multiples = np.array(self.times) / self.times[0]
        if np.any(abs(multiples - multiples.round()) > 1e-9 * multiples):
            raise ValueError(f"times must be multiples of the first one, got {list(self.times)}")
        for key, law in (("initial", self.initial), ("speed", self.speed)):
            if law.modes > (most := (self.resolution - 1) // 2):
                raise ValueError(
                    f"{key}.modes must be at most {most} for resolution = {self.resolution}, got "
                    f"{law.modes}"
                )
        return self

    @property
    def formula(self) -> str:
        return "u_tt = c^2 div grad u on the torus, u_t(0) = 0"

    @property
    def latex(self) -> str:
        return r"u_{tt} = c(x)^2 \Delta u,\quad u(0) = a,\quad u_t(0) = 0 \text{ on the torus}"

    @property
    def domain(self) -> Box:
        return Box.periodic(self.resolution, self.resolution)

    def variables(self) -> tuple[Variable, ...]:
        energy = "largest relative change of the discrete energy"
        return (
            function(self.domain, "a", "input", "initial value u(x, 0)"),
            function(self.domain, "c", "input", "speed c(x)"),
            function(self.domain, "u", "target", "solution u(x, t)", times=self.times),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
            scalar("drift", "quality", energy),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        jumps = self.speed.law == "layers"
        return Physics(
            symmetries=("shift",),
            sentences={"initial": self.initial.sentence, "speed": self.speed.sentence},
            drawing={
                "a": Drawing("u₀", "diverging"),
                "c": Drawing("c", "phases" if jumps else "sequential"),
                "u": Drawing("u", "diverging"),
            },
        )

    @property
    def streams_per_sample(self) -> int:
        return 2

    @property
    def floats_per_sample(self) -> int:
        return (12 + 2 * len(self.times)) * (2 * self.resolution) ** 2

    def _march(self, finer: int) -> WaveMarch:
        """The march on finer points; its steps are in proportion."""
        from pdegen.equations.wave.solver import WaveMarch

        coarse = WaveMarch.stable(self.resolution, self.speed.high, self.times)
        return WaveMarch(self.times, finer * coarse.steps)

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        torus = Torus((PeriodicGrid(2 * self.resolution),) * 2, 1)
        fine_a = self.initial.build()(torus, seed, samples)
        numbers = [sample + _SPEED_STRIDE for sample in samples]
        fine_c = self.speed.of(self.speed.build()(torus, seed, numbers))
        u, error, drift = list[np.ndarray](), list[float](), list[float]()
        for a, c in zip(fine_a, fine_c, strict=True):
            fine, change = self._march(2)(a, c)
            label = fine[:, ::2, ::2]
            coarse, _ = self._march(1)(a[::2, ::2], c[::2, ::2])
            error.append(_SHARE[self.speed.law] * float(_distances(coarse, label).max()))
            u.append(label)
            drift.append(change)
        solution = np.stack(u)
        check_size(solution)
        values = {"a": fine_a[:, ::2, ::2], "c": fine_c[:, ::2, ::2],
                  "u": solution[:, 0] if len(self.times) == 1 else solution}  # fmt: skip
        return {name: value.astype(np.float32) for name, value in values.items()} | {
            "error": with_rounding(np.array(error)),
            "drift": np.array(drift),
        }

    def checks(self) -> StoreChecks:
        """Checks of a store: both laws, and u by a solution from the stored inputs.

        The solution on the points of the output differs from u by the distance from which the
        stated error follows, up to rounding.
        """
        n, field, speed = self.resolution, self.initial.build(), self.speed
        share = _SHARE[speed.law]
        # of inputs and labels: that of c shifts the phases of waves in the time to the last frame
        waves = 2 * np.pi * (self.initial.modes + speed.modes) * speed.high * self.times[-1]
        rounding = EPSILON * (30 + waves)

        def bounds(values: Values) -> tuple[np.ndarray, float]:
            c = values["c"].astype(np.float64)
            beyond = np.maximum(speed.low - c, c - speed.high)
            if speed.law == "layers":
                beyond = np.minimum(abs(c - speed.low), abs(c - speed.high))
            return beyond.max(axis=(1, 2)), EPSILON * speed.high

        def distance(values: Values) -> tuple[np.ndarray, float]:
            a, c = (values[name].astype(np.float64) for name in "ac")
            u = values["u"].astype(np.float64).reshape(len(a), -1, n, n)
            march = self._march(1)
            away = [_distances(march(*pair)[0], label).max()
                    for *pair, label in zip(a, c, u, strict=True)]  # fmt: skip
            return abs(np.array(away) - values["error"] / share), rounding

        return StoreChecks(
            (
                GaussianCheck(
                    "a", lambda a: a.astype(np.float64), torus_modes(field, n),
                    np.full((n, n), field.pointwise_variance), relative=True,
                ),
                speed.check(n),
                Distinct("a"),
                *stated_error(np.inf),
                Bound("drift", "the change of the energy", lambda v: (abs(v["drift"]), _DRIFT)),
                Bound("c", "the distance from the bounds of the speed", bounds),
                Bound("u", "the distance from its points against the error", distance),
            )
        )  # fmt: skip


def _distances(
    u: Float[np.ndarray, "times n n"], label: Float[np.ndarray, "times n n"]
) -> Float[np.ndarray, " times"]:
    """The distance from a label at each time, relative to the label."""
    return np.linalg.norm(u - label, axis=(1, 2)) / np.linalg.norm(label, axis=(1, 2))
