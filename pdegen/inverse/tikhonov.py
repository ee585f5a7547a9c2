"""Tikhonov's inversion of any map that an equation states, by differences of the map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from pdegen.inverse.classical import (
    ClassicalMethod,
    Estimate,
    Forward,
    InverseProblem,
    Inversion,
    half_decades,
)
from pdegen.numerics.errors import SolveError
from pdegen.sampling.noise_law import NoiseLaw
from pdegen.schema import SchemaError

# The linear system of a Gauss-Newton step, and the criterion that ends the steps.


_LEAST = 8  # iterations before the tolerance is tested
_WINDOW = 3  # steps whose common decrease of the objective is tested; a single step can be short


def settled(values: Sequence[float], rtol: float) -> bool:
    """Whether the last three steps together decreased the objective by at most `rtol` of it.

    Args:
        values: Values of the objective, from the start to the last step.

    >>> settled([8.0, 4.0, 2.0, 1.0], 0.1), settled([2.0, 1.02, 1.0, 1.0, 1.0], 0.1)
    (False, True)
    """
    if len(values) <= _WINDOW:
        return False
    before, now = values[-1 - _WINDOW], values[-1]
    return before - now <= rtol * abs(before)


def newton_step(
    hessian: Callable[[np.ndarray], np.ndarray], g: np.ndarray, limit: int, rtol: float
) -> np.ndarray:
    """Solve H p = g by conjugate gradients until ‖H p - g‖ <= rtol ‖g‖.

    `hessian` applies H = λ + Jᵀ R⁻¹ J to a vector, and `limit` is the largest number of iterations.
    The residuals are reorthogonalised, because rounding errors destroy their orthogonality if the
    eigenvalues of H span many orders of magnitude.

    References: G. Golub and C. Van Loan, Matrix Computations, 4th ed., sections 10.3 and 11.3.

    >>> newton_step(lambda v: np.array([1.0, 4.0, 9.0]) * v, np.ones(3), 3, 1e-12).round(6).tolist()
    [1.0, 0.25, 0.111111]
    """
    limit = min(limit, g.size)
    basis = np.empty((limit, g.size))
    step, r = np.zeros(g.size), g.ravel()
    direction, rho = r, float(r @ r)
    goal = rtol**2 * rho
    for k in range(limit):
        if rho == 0:
            break
        basis[k] = r / np.sqrt(rho)
        product = hessian(direction.reshape(g.shape)).ravel()
        alpha = rho / float(direction @ product)
        step += alpha * direction
        r = r - alpha * product
        r -= (basis[: k + 1] @ r) @ basis[: k + 1]
        before, rho = rho, float(r @ r)
        if rho <= goal and k + 1 >= _LEAST:
            break
        direction = r + rho / before * direction
    return step.reshape(g.shape)


MOST = 1024  # unknowns: the matrices are dense, and a derivative takes two solves for each unknown
_WEIGHTS = half_decades(-3, 1)
_STEP = 1e-3  # of a central difference, over the deviation of a
_LINEAR = 1e-6  # relative error of the linearised map, below which its derivative is kept
_HALVINGS = 10
_CONVERGED = 1e-8  # decrease over the objective that a further step is not worth
_FLOOR = 1e-6  # deviation of the rounding to float32, over the root mean square of the data

Unknowns = Float[np.ndarray, " p"]


@dataclass(frozen=True)
class TikhonovInversion:
    """Estimate a from data d = F(a) + e on the unit interval or square by minimising

        ½ Σ ((d - F(a))/σ)² + ½ λ ∫ (|∇b|² + b²),   b = (a - m)/s.

    Here m and s are the mean and the deviation of a over the training samples, points and cells.
    The integral is a mean over the points, and ∇b is a forward
    difference. The steps are those of Gauss and Newton; they end when the next one would decrease
    the objective by less than 1e-8 of it. The derivative of F is a central difference; it is
    computed once if F is linear, and anew at each step otherwise.

    References: H. Engl, M. Hanke and A. Neubauer, Regularization of Inverse Problems (1996),
    chapters 5 and 10.
    """

    forward: Forward  # F
    shape: tuple[int, ...]  # of a
    mean: float  # m
    scale: float  # s > 0
    weight: float  # λ > 0
    sensors: Bool[np.ndarray, " *points"] | None = None  # True at the points with data
    shared: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray], compare=False)
    steps: int = 30  # largest number of steps

    @cached_property
    def penalty(self) -> Float[np.ndarray, "p p"]:
        """The matrix P of the penalty ½ bᵀ P b."""
        size = int(np.prod(self.shape))
        unit = np.eye(size).reshape(*self.shape, size)
        form = np.eye(size)
        for axis, n in enumerate(self.shape):
            slopes = n * np.diff(unit, axis=axis).reshape(-1, size)
            form += slopes.T @ slopes
        return self.weight * form / size

    def data_of(self, b: Unknowns) -> Float[np.ndarray, " m"]:
        """F(m + s b) at the points with data."""
        values = self.forward(self.coefficient(b))
        return (values if self.sensors is None else values[self.sensors]).ravel()

    def coefficient(self, b: Unknowns) -> Float[np.ndarray, "..."]:
        return self.mean + self.scale * b.reshape(self.shape)

    def derivative(self, b: Unknowns) -> Float[np.ndarray, "m p"]:
        """The derivative J of `data_of`, by central differences."""
        columns = [
            (self.data_of(b + _STEP * e) - self.data_of(b - _STEP * e)) / (2 * _STEP)
            for e in np.eye(b.size)
        ]
        return np.stack(columns, axis=1)

    @property
    def _first(self) -> Float[np.ndarray, "m p"]:
        """J at b = 0, which all samples and weights share."""
        if "J" not in self.shared:
            self.shared["J"] = self.derivative(np.zeros(int(np.prod(self.shape))))
        return self.shared["J"]

    def __call__(self, data: np.ndarray, noise: NoiseLaw | np.ndarray) -> Estimate:
        """The estimate for one sample, from data and the law of their noise, or the deviation of
        independent Gaussian noise. Correlation of the noise is ignored."""
        law = NoiseLaw.of(noise).raveled()
        if (by := law.observation) is not None:

            def observed(a: np.ndarray) -> np.ndarray:
                return by(self.forward(a))

            blurred = replace(self, forward=observed, shared={})
            return blurred(data, replace(law, observation=None))
        d = data.ravel()
        b, j = np.zeros(int(np.prod(self.shape))), self._first
        values, solves, taken, converged = self.data_of(b), 1, 0, False
        for _ in range(self.steps):
            variance = law.variance(values, d - values)
            sigma = np.sqrt(variance + _FLOOR**2 * np.mean(d**2))
            white = j / sigma[:, None]
            r = (d - values) / sigma
            gradient = white.T @ r - self.penalty @ b
            step = np.linalg.solve(white.T @ white + self.penalty, gradient)
            objective = 0.5 * float(r @ r + b @ self.penalty @ b)
            if converged := 0.5 * float(step @ gradient) <= _CONVERGED * objective:
                break
            moved = self._line_search(b, step, d, sigma, values)
            if moved is None:
                break
            length, reached, tried = moved
            solves, taken = solves + tried, taken + 1
            predicted = values + length * (j @ step)
            error = np.linalg.norm(reached - predicted)
            linear = length == 1 and error <= _LINEAR * np.linalg.norm(reached - values)
            b, values = b + length * step, reached
            if converged := bool(linear) and law.is_fixed:
                break
            if not linear:
                j, solves = self.derivative(b), solves + 2 * b.size
        return Estimate(self.coefficient(b), solves, taken, converged)

    def _line_search(
        self, b: Unknowns, step: Unknowns, d: np.ndarray, sigma: np.ndarray, values: np.ndarray
    ) -> tuple[float, np.ndarray, int] | None:
        """Halve the step until the objective decreases."""

        def objective(b: Unknowns, values: np.ndarray) -> float:
            return float(0.5 * np.sum(((d - values) / sigma) ** 2) + 0.5 * b @ self.penalty @ b)

        before, length = objective(b, values), 1.0
        for tried in range(1, _HALVINGS + 1):
            try:
                reached = self.data_of(b + length * step)
            except SolveError:  # the step is too long
                length /= 2
                continue
            if objective(b + length * step, reached) < before:
                return length, reached, tried
            length /= 2
        return None


def by_forward(forward: Forward, setting: InverseProblem) -> dict[str, ClassicalMethod]:
    """Tikhonov's method for the map F of an equation.

    Raises SchemaError if there are more unknowns than dense matrices allow.
    """
    shape = setting.a.shape[1:]
    size = int(np.prod(shape))
    if size > MOST:
        raise SchemaError(
            f"Tikhonov's method by differences has at most {MOST:,} unknowns, got {size:,}"
        )
    mean, scale = (
        (float(setting.a.mean()), float(setting.a.std()) or 1.0) if len(setting.a) else (0.0, 1.0)
    )
    shared = dict[str, np.ndarray]()

    def with_weight(weight: float) -> Inversion:
        return TikhonovInversion(forward, shape, mean, scale, weight, setting.sensors, shared)

    reason = "the plainest baseline, which knows the equation and no distribution"
    return {"Tikhonov": ClassicalMethod(reason, _WEIGHTS, with_weight)}
