"""What a store of a semilinear equation claims, as far as its terms say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Polynomial

from pdegen.checks.evolution import Evolution
from pdegen.checks.gaussian import EPSILON
from pdegen.checks.law import SMALLEST_ERROR, Bound, Check, Distinct, Values
from pdegen.equations.semilinear.solver import Numbers, Terms
from pdegen.numerics.torus import Torus

Moments = Float[np.ndarray, "batch times components"]
Quantity = Callable[["_Seen"], tuple[Moments, Moments]]  # a number, and its limit

_SMALLEST = 64  # the smallest step is a 64th of the largest
_LEAST = 2.0**-149  # the spacing of the smallest numbers of float32
_LAST = 0.9  # modes beyond this share of the highest are taken for those that are not seen
_TRUST = 4.0  # an error is at most this times its estimate: less is seen of 95 % of the samples


def solved_checks(dt: float | None, tolerance: float, evolved: bool) -> tuple[Check, ...]:
    """Inputs differ, errors and steps are what the solver accepts; dt is None without steps."""
    rounding = SMALLEST_ERROR if evolved else 0.0
    checks = [
        Distinct("a"),
        Bound("error", "the solver's error", lambda v: (v["error"], tolerance)),
        Bound("error", "minus the solver's error", lambda v: (-v["error"], -rounding)),
    ]
    if dt is not None:
        least = dt / _SMALLEST * (1 - 1e-6)
        checks.append(Bound("step", "the time step", lambda v: (v["step"], dt)))
        checks.append(Bound("step", "minus the time step", lambda v: (-v["step"], -least)))
    return tuple(checks)


class _Seen:
    """A batch as the output grid sees it, all of it or not: a as the first time, then u."""

    def __init__(self, values: Values, torus: Torus, shape: tuple[int, int], exact: bool) -> None:
        def whole(name: str, times: int) -> np.ndarray:
            array = values[name].astype(np.float64)
            return array.reshape(len(array), times, shape[1], *torus.points)

        self.torus = torus
        self.w = np.concatenate([whole("a", 1), whole("u", shape[0] - 1)], axis=1)
        self.v = torus.to_modes(self.w)
        self.grid = tuple(range(3, self.w.ndim))
        # one that is no error is at fault elsewhere
        error = _TRUST * np.maximum(values["error"], 0.0)[:, None, None]
        self.error = error * np.linalg.norm(self.norm(self.v), axis=2, keepdims=True)
        self.error[:, 0] = 0
        last = np.zeros(torus.shape, bool)
        for k, highest in zip(torus.numbers, torus.highest, strict=True):
            last = last | (np.abs(k) > highest * _LAST)
        self.unseen = 0.0 if exact else 2 * self.norm(self.v * last)

    def norm(self, v: np.ndarray) -> Moments:
        """Root mean squares of functions with these modes."""
        return np.sqrt(np.sum(self.torus.weights * np.abs(v) ** 2, axis=self.grid))

    @property
    def largest(self) -> Moments:
        return np.abs(self.w).max(axis=self.grid)

    @property
    def slack(self) -> Moments:
        """What the true u may differ by, in the norm."""
        return self.unseen + self.error + 2 * EPSILON * self.largest + _LEAST


@dataclass(frozen=True)
class SemilinearClaims:
    """What follows for u from the terms of the equation: quantities with their limits.

    - Linear terms alone: u(t) = e^(Lt) a, computed from the stored a.
    - A component whose other terms are divergences has the mean e^(-λt) times that of a.
    - Where convection conserves energy and the reaction takes some, ‖u‖ grows from each time to the
      next by at most e^(max Re L Δt); where there is no reaction, by at least e^(min Re L Δt).
    - Where L is real and the reaction of a component is to itself alone, u is a gradient flow: the
      functional ∫ -uLu/2 - ∫₀^u R decreases.
    - Diffusion without derivatives of higher order has a maximum principle: a component that reacts
      to itself alone stays between the bounds of a, or the roots of R beyond these. Of components
      that react to each other, those that start >= 0 stay so where R_k >= 0 at u_k = 0.

    These hold up to the solver's error, rounding, and what the output grid does not see, of which
    its last tenth of the modes gives the size.
    """

    terms: Terms  # of the equation
    bounds: tuple[Numbers, Numbers] | None  # of the components of a; None where its law has none
    # solving, seen: the modes of the solver, and those of the output grid
    solving: Torus
    seen: Torus
    times: tuple[float, ...]  # 0, and those of u
    tolerance: float  # largest error

    def checks(self) -> Iterator[Check]:
        terms = self.terms
        alone = [k for k in range(terms.components) if terms.reacts_alone(k)]
        flux = not any(terms.gradient_norm) and not (terms.velocity and any(terms.convection))
        inert = [k for k in alone if not terms.reaction_of(k).any()]
        calm = [] if (terms.velocity and terms.transported) or any(terms.gradient_norm) else alone
        damped = [k for k in calm if _damps(terms.reaction_of(k))]
        smooth = not any((*terms.hyper_diffusion, *terms.dispersion)) and not (
            terms.velocity and any(terms.conservative_convection)
        )
        smooth = smooth and min(terms.diffusion) >= 0
        flows = not (terms.transported or any(terms.gradient_norm) or np.any(terms.advection))
        claims: list[tuple[str, list[int], Quantity]] = []
        if terms.diagonal:  # says all that the others do
            yield self._bound(
                "the distance from the solution of the stored a", alone, self.distance
            )
            return
        if flux:
            claims.append(("the change of the mean", inert, self.mean))
        claims.append(("the growth of the norm since the time before", damped, self.growth))
        conserved = [k for k in damped if k in inert]
        claims.append(("the decay of the norm since the time before", conserved, self.decay))
        if flows and not any(terms.dispersion):
            claims.append(("the growth of the functional since the time before", alone, self.flow))
        if smooth:
            coupled = [k for k in range(terms.components) if k not in alone]
            positive = self.bounds is not None and min(self.bounds[0]) >= 0 and terms.positive
            claims.append(("the excess over the range of a", alone, self.excess))
            claims.append(("minus the least value", coupled if positive else [], self.below))
        for name, components, quantity in claims:
            if components:
                yield self._bound(name, components, quantity)
        evolved = Evolution(
            terms=lambda torus: (terms.linear(torus), terms.nonlinear(torus)),
            degree=terms.degree,
            torus=self.seen,
            components=terms.components,
            times=self.times,
            tolerance=self.tolerance,
            folded=self.solving.points != self.seen.points,
        )
        yield from evolved.checks()

    def _bound(self, name: str, components: list[int], quantity: Quantity) -> Bound:
        """Of a quantity at the time, and of the component, where it is nearest to its limit."""
        shape = len(self.times), self.terms.components
        exact = self.terms.diagonal and self.bounds is None

        def worst(values: Values) -> tuple[np.ndarray, np.ndarray]:
            observed, limit = quantity(_Seen(values, self.seen, shape, exact))
            observed, limit = (
                np.broadcast_to(x, observed.shape)[..., components].reshape(len(observed), -1)
                for x in (observed, limit)
            )
            place = np.argmax(observed - limit, axis=1)
            rows = np.arange(len(place))
            return observed[rows, place], limit[rows, place]

        return Bound("u", name, worst)

    @cached_property
    def _rates(self) -> tuple[np.ndarray, np.ndarray]:
        """Largest and least Re L of each component."""
        rate = np.real(self.terms.linear(self.solving)).reshape(self.terms.components, -1)
        return rate.max(axis=1), rate.min(axis=1)

    def distance(self, seen: _Seen) -> tuple[Moments, Moments]:
        t = np.reshape(self.times[1:], (-1, 1, *[1] * self.terms.axes))
        exact = np.exp(self.terms.linear(self.seen) * t) * seen.v[:, :1]
        growth = np.exp(self._rates[0] * np.reshape(self.times[1:], (-1, 1)))
        return seen.norm(seen.v[:, 1:] - exact), seen.slack[:, 1:] + growth * seen.slack[:, :1]

    def mean(self, seen: _Seen) -> tuple[Moments, Moments]:
        factor = np.exp(np.array(self.terms.growth) * np.reshape(self.times[1:], (-1, 1)))
        mean = np.real(seen.v[(..., *[0] * self.terms.axes)])
        slack = seen.unseen + 2 * EPSILON * seen.largest  # steps change no mean
        return np.abs(mean[:, 1:] - factor * mean[:, :1]), slack[:, 1:] + factor * slack[:, :1]

    def growth(self, seen: _Seen) -> tuple[Moments, Moments]:
        factor = np.exp(self._rates[0] * np.diff(self.times)[:, None])
        norm, slack = seen.norm(seen.v), seen.slack
        return norm[:, 1:], factor * (norm + slack)[:, :-1] + slack[:, 1:]

    def decay(self, seen: _Seen) -> tuple[Moments, Moments]:
        factor = np.exp(self._rates[1] * np.diff(self.times)[:, None])
        norm, slack = seen.norm(seen.v), seen.slack
        return factor * norm[:, :-1], (norm + slack)[:, 1:] + factor * slack[:, :-1]

    def flow(self, seen: _Seen) -> tuple[Moments, Moments]:
        """Its gradient is -(Lu + R), so errors change it in proportion to that; the potential is
        summed on points that see all its products."""
        linear = np.real(self.terms.linear(self.seen))
        fine = tuple(n * (self.terms.degree + 1) // 2 + 2 for n in self.seen.points)
        u = self.seen.to_points(seen.v, fine)
        quadratic = -0.5 * np.sum(self.seen.weights * linear * np.abs(seen.v) ** 2, seen.grid)
        value, gradient = np.empty_like(quadratic), np.empty_like(quadratic)
        force = self.seen.to_points(linear * seen.v, fine)
        for k in range(self.terms.components):
            reaction, axes = Polynomial(self.terms.reaction_of(k)), tuple(range(2, u.ndim - 1))
            value[:, :, k] = quadratic[:, :, k] - reaction.integ()(u[:, :, k]).mean(axis=axes)
            squares = (force[:, :, k] + reaction(u[:, :, k])) ** 2
            gradient[:, :, k] = np.sqrt(squares.mean(axis=axes))
        steepest = np.abs(linear).reshape(len(linear), -1).max(axis=1)
        slack = gradient * seen.slack + steepest * seen.slack**2
        return np.diff(value, axis=1), slack[:, 1:] + slack[:, :-1]

    def excess(self, seen: _Seen) -> tuple[Moments, Moments]:
        """Of u beyond what bounds a, which between two points may be beyond its values there, or
        beyond the next root of the reaction, where that drives u out of these bounds."""
        a, u, space = seen.w[:, 0], seen.w[:, 1:], tuple(range(2, seen.w.ndim - 1))
        between = sum(np.abs(a - np.roll(a, 1, axis)).max(axis=space) for axis in space)
        high, low = a.max(axis=space) + between, a.min(axis=space) - between
        if self.bounds is not None:
            low, high = np.maximum(low, self.bounds[0]), np.minimum(high, self.bounds[1])
        for k in range(self.terms.components):
            reaction = Polynomial(self.terms.reaction_of(k)) + Polynomial([0, self.terms.growth[k]])
            high[:, k] = _held(reaction, high[:, k])
            low[:, k] = -_held(-reaction(Polynomial([0, -1])), -low[:, k])
        above = u.max(axis=seen.grid) - high[:, None]
        return np.maximum(above, low[:, None] - u.min(axis=seen.grid)), self._pointwise(seen)

    def below(self, seen: _Seen) -> tuple[Moments, Moments]:
        return -seen.w[:, 1:].min(axis=seen.grid), self._pointwise(seen)

    def _pointwise(self, seen: _Seen) -> Moments:
        """What u may differ by at a point: the sum of all modes of the error."""
        modes = self.terms.components * self.solving.weights.sum()
        return math.sqrt(modes) * seen.error[:, 1:] + (seen.slack - seen.error)[:, 1:]


def _damps(reaction: np.ndarray) -> bool:
    """Whether u R(u) <= 0 for certain: odd powers alone, none with a positive coefficient."""
    return not reaction[::2].any() and not (reaction > 0).any()


def _held(reaction: Polynomial, top: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    """What u <= top stays below by u' = R(u): top where R(top) <= 0, or the next root above."""
    roots = reaction.trim().roots()
    real = np.sort(np.real(roots[np.abs(np.imag(roots)) < 1e-9 * (1 + np.abs(roots))]))
    upward = np.append(real, np.inf)[np.searchsorted(real, top)]
    return np.where(reaction(top) > 0, upward, top)
