"""Checks of a store of a semilinear equation, derived from the terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Polynomial

from pdegen.checks.check import EPSILON, Bound, Check, Distinct, Values, stated_error
from pdegen.checks.evolution import Evolution
from pdegen.equations.semilinear.solver import Numbers, Terms
from pdegen.numerics.semilinear import Modes, Nonlinear
from pdegen.numerics.spectral import Symbol, Torus, even_extension

Moments = Float[np.ndarray, "batch times components"]
Quantity = Callable[["_OutputBatch"], tuple[Moments, Moments]]  # from a batch to values and limits

_SMALLEST = 64  # ratio of the largest time step to the smallest
_LEAST = 2.0**-149  # spacing of the smallest numbers of float32
_LAST = 0.9  # higher modes than this share of the highest one estimate the unresolved modes
_TRUST = 4.0  # an error is at most this times its estimate: less is observed in 95 % of samples


def solved_checks(dt: float | None, tolerance: float) -> tuple[Check, ...]:
    """Checks of inputs, errors and steps.

    Inputs must be distinct, and errors and steps must be in the range that the solver accepts.

    Args:
        dt: Largest time step; None for a solver without steps.
        tolerance: Largest error of the solver.
    """
    checks = [Distinct("a"), *stated_error(tolerance)]
    if dt is not None:
        least = dt / _SMALLEST * (1 - 1e-6)
        checks.append(Bound("step", "the time step", lambda v: (v["step"], dt)))
        checks.append(Bound("step", "minus the time step", lambda v: (-v["step"], -least)))
    return tuple(checks)


class _OutputBatch:
    """A batch on the output grid. The first frame of each sample is a; the other frames are u.

    `exact` states whether the output grid resolves all modes.
    """

    def __init__(
        self, values: Values, torus: Torus, shape: tuple[int, int], exact: bool, walls: bool
    ) -> None:
        def frames(name: str, times: int) -> np.ndarray:
            array, halves = values[name].astype(np.float64), 2 if walls else 1
            cells = (n // halves for n in torus.points)
            array = array.reshape(len(array), times, shape[1], *cells)
            return even_extension(array, len(torus.points)) if walls else array

        self.torus = torus
        self.w = np.concatenate([frames("a", 1), frames("u", shape[0] - 1)], axis=1)
        self.v = torus.to_modes(self.w)
        self.grid = tuple(range(3, self.w.ndim))
        # negative values, which another check reports, count as 0
        error = _TRUST * np.maximum(values["error"], 0.0)[:, None, None]
        self.error = error * np.linalg.norm(self.norm(self.v), axis=2, keepdims=True)
        self.error[:, 0] = 0
        last = np.zeros(torus.shape, bool)
        for k, highest in zip(torus.numbers, torus.highest, strict=True):
            last = last | (np.abs(k) > highest * _LAST)
        self.missing = 0.0 if exact else 2 * self.norm(self.v * last)

    def norm(self, v: np.ndarray) -> Moments:
        """Root mean squares of the functions with the modes v."""
        return np.sqrt(np.sum(self.torus.weights * np.abs(v) ** 2, axis=self.grid))

    @property
    def largest(self) -> Moments:
        return np.abs(self.w).max(axis=self.grid)

    @property
    def slack(self) -> Moments:
        """Largest root mean square of the difference between the stored u and the true u."""
        return self.missing + self.error + 2 * EPSILON * self.largest + _LEAST


@dataclass(frozen=True)
class SemilinearClaims:
    """Quantities of u, with limits that follow from the terms of the equation.

    - If all terms are linear, u(t) = e^(Lt) a, computed from the stored a.
    - If all terms of a component except drag are divergences, the mean of the component is e^(-λt)
      times the mean of a.
    - If convection conserves energy and the reaction dissipates it, ‖u‖ grows from each time to the
      next by a factor of at most e^(max Re L Δt). Without reaction, the factor is at least
      e^(min Re L Δt).
    - If L is real and a component reacts with itself only, u is a gradient flow: the functional
      ∫ -uLu/2 - ∫₀^u R decreases. If all terms are a Laplacian, uₜ = Δ(Mu + q(u)), the functional
      is ∫ uMu/2 + ∫₀^u q.
    - A projected velocity has divergence 0, and its energy is the sum over the components.
    - Diffusion without derivatives of higher order has a maximum principle. A component that reacts
      with itself only stays in the range of a. If R drives the component out of this range, the
      component does not pass the next root of R. Components that react with each other stay
      >= 0 if they are >= 0 at the start and R_k >= 0 at u_k = 0.

    The limits include the solver's error, rounding, and the modes that the output grid does not
    resolve. The norm of these modes is estimated from the highest tenth of the resolved modes.
    """

    terms: Terms
    bounds: tuple[Numbers, Numbers] | None  # of the components of a, if there are any
    solving: Torus  # modes of the solver
    output: Torus  # modes of the output grid
    times: tuple[float, ...]  # 0, then the times of u
    tolerance: float  # largest error
    walls: bool = False  # whether stored values are those of a box, which has no flow through walls

    def checks(self) -> Iterator[Check]:
        terms = self.terms
        # f pushes every quantity
        own = range(0 if terms.forced else terms.components)
        alone = [k for k in own if terms.reacts_alone(k)]
        flux = not any(terms.gradient_norm) and (
            terms.projection or not (terms.velocity and any(terms.convection))
        )
        reactions = {k: terms.reaction_of(k) for k in alone}
        inert = [k for k in alone if not reactions[k].any()]
        mixed = (terms.velocity and terms.transported) or any(terms.gradient_norm)
        calm = alone if terms.projection or not (mixed or terms.laplacians) else []
        # u R(u) <= 0: only odd powers, no positive coefficient
        damped = [k for k in calm if not (reactions[k][::2].any() or (reactions[k] > 0).any())]
        smooth = not any((*terms.hyper_diffusion, *terms.dispersion)) and not (
            terms.velocity and any(terms.conservative_convection)
        )
        smooth = smooth and min(terms.diffusion) >= 0
        smooth = smooth and not (terms.projection or terms.laplacians or terms.forced)
        flows = not (terms.transported or any(terms.gradient_norm) or np.any(terms.advection))
        claims: list[tuple[str, list[int], Quantity]] = []
        if terms.diagonal:  # implies all other claims
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
            falling = [k for k in alone if self._functional(k) is not None]
            claims.append(
                ("the growth of the functional since the time before", falling, self.flow)
            )
        if terms.projection:
            claims.append(("the divergence", [0], self.divergence))
        if smooth:
            coupled = [k for k in range(terms.components) if k not in alone]
            positive = self.bounds is not None and min(self.bounds[0]) >= 0 and terms.positive
            claims.append(("the excess over the range of a", alone, self.excess))
            claims.append(("minus the least value", coupled if positive else [], self.below))
        for name, components, quantity in claims:
            if components:
                yield self._bound(name, components, quantity)
        evolved = Evolution(
            terms=self._with_source if terms.forced else self._terms,
            degree=terms.degree,
            torus=self.output,
            components=terms.components * (2 if terms.forced else 1),
            times=self.times,
            tolerance=self.tolerance,
            folded=self.solving.points != self.output.points,
            walls=self.walls,
            constant=terms.forced,
        )
        yield from evolved.checks()

    def _terms(self, torus: Torus) -> tuple[Symbol, Nonlinear | None]:
        return self.terms.linear(torus), self.terms.nonlinear(torus)

    def _with_source(self, torus: Torus) -> tuple[Symbol, Nonlinear | None]:
        """The equation of u and f together, where fₜ = 0."""
        linear, nonlinear = self._terms(torus)
        assert nonlinear is not None

        def pushed(v: Modes) -> Modes:
            u, f = np.split(v, 2, axis=1)
            return np.concatenate([nonlinear(u) + f, np.zeros_like(f)], axis=1)

        return np.concatenate([linear, np.zeros_like(linear)]), pushed

    def _bound(self, name: str, components: list[int], quantity: Quantity) -> Bound:
        """A check of a quantity at the time and component where it is nearest to its limit."""
        shape = len(self.times), self.terms.components
        exact = self.terms.diagonal and self.bounds is None

        def worst(values: Values) -> tuple[np.ndarray, np.ndarray]:
            observed, limit = quantity(_OutputBatch(values, self.output, shape, exact, self.walls))
            observed, limit = (
                np.broadcast_to(x, observed.shape)[..., components].reshape(len(observed), -1)
                for x in (observed, limit)
            )
            nearest = np.argmax(observed - limit, axis=1)
            rows = np.arange(len(nearest))
            return observed[rows, nearest], limit[rows, nearest]

        return Bound("u", name, worst)

    @cached_property
    def _rates(self) -> tuple[np.ndarray, np.ndarray]:
        """Largest and smallest value of Re L for each component."""
        rate = np.real(self.terms.linear(self.solving)).reshape(self.terms.components, -1)
        return rate.max(axis=1), rate.min(axis=1)

    def distance(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        t = np.reshape(self.times[1:], (-1, 1, *[1] * self.terms.axes))
        exact = np.exp(self.terms.linear(self.output) * t) * batch.v[:, :1]
        growth = np.exp(self._rates[0] * np.reshape(self.times[1:], (-1, 1)))
        return batch.norm(batch.v[:, 1:] - exact), batch.slack[:, 1:] + growth * batch.slack[:, :1]

    def mean(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        factor = np.exp(np.array(self.terms.growth) * np.reshape(self.times[1:], (-1, 1)))
        mean = np.real(batch.v[(..., *[0] * self.terms.axes)])
        slack = batch.missing + 2 * EPSILON * batch.largest  # steps change no mean
        return np.abs(mean[:, 1:] - factor * mean[:, :1]), slack[:, 1:] + factor * slack[:, :1]

    def growth(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        factor = np.exp(self._rates[0] * np.diff(self.times)[:, None])
        norm, slack = self._norms(batch)
        return norm[:, 1:], factor * (norm + slack)[:, :-1] + slack[:, 1:]

    def decay(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        factor = np.exp(self._rates[1] * np.diff(self.times)[:, None])
        norm, slack = self._norms(batch)
        return factor * norm[:, :-1], (norm + slack)[:, 1:] + factor * slack[:, :-1]

    def _norms(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        """Norms and their slack: of each component, or of a projected velocity as a whole."""
        norm, slack = batch.norm(batch.v), batch.slack
        if not self.terms.projection:
            return norm, slack
        whole = np.sqrt(np.sum(norm**2, axis=2, keepdims=True)), slack.sum(axis=2, keepdims=True)
        return np.broadcast_to(whole[0], norm.shape), np.broadcast_to(whole[1], norm.shape)

    def divergence(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        d = np.stack([np.broadcast_to(d, self.output.shape) for d in self.output.d])
        steepest = np.sqrt(np.abs(self.output.laplacian).max())
        div = batch.norm(np.sum(d * batch.v, axis=2, keepdims=True))
        return div, steepest * batch.slack.sum(axis=2, keepdims=True)

    def _functional(self, k: int) -> tuple[np.ndarray, Polynomial] | None:
        """The symbol M and the polynomial q of the functional ∫ uMu/2 + ∫₀^u q of a component.

        Both are minus the terms of the equation, or minus their inverse Laplacian. None if the
        equation has no such functional.
        """
        terms, linear = self.terms, np.real(self.terms.linear(self.output))[k]
        potential = terms.laplacian_of(k)
        if not any(of == k for of, _, _ in terms.laplacians):
            return -linear, -Polynomial(terms.reaction_of(k))
        if potential is None or terms.reaction_of(k).any() or terms.growth[k]:
            return None
        return linear * self.output.inverse_laplacian, Polynomial(potential)

    def flow(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        """The increase of the functional since the previous time.

        The limit includes the effect of errors of u, estimated from the gradient Mu + q(u) of the
        functional. The potential ∫₀^u q is summed over enough points to resolve its products.
        """
        fine = tuple(n * (self.terms.degree + 1) // 2 + 2 for n in self.output.points)
        value, gradient = np.zeros_like(batch.slack), np.zeros_like(batch.slack)
        steepest = np.zeros(self.terms.components)
        for k in range(self.terms.components):
            if functional := self._functional(k):
                m, q = functional
                v = batch.v[:, :, k]
                u, force = (self.output.to_points(w, fine) for w in (v, m * v))
                axes = tuple(range(2, u.ndim))
                value[:, :, k] = 0.5 * np.sum(self.output.weights * m * np.abs(v) ** 2, axes)
                value[:, :, k] += q.integ()(u).mean(axis=axes)
                gradient[:, :, k] = np.sqrt(((force + q(u)) ** 2).mean(axis=axes))
                steepest[k] = np.abs(m).max()
        slack = gradient * batch.slack + steepest * batch.slack**2
        return np.diff(value, axis=1), slack[:, 1:] + slack[:, :-1]

    def excess(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        """The excess of u over the range of a.

        The range of a is widened by the largest difference between neighbouring values. If the
        reaction drives u out of this range, the range ends at the next root of the reaction.
        """
        a, u, space = batch.w[:, 0], batch.w[:, 1:], tuple(range(2, batch.w.ndim - 1))
        between = sum(np.abs(a - np.roll(a, 1, axis)).max(axis=space) for axis in space)
        high, low = a.max(axis=space) + between, a.min(axis=space) - between
        if self.bounds is not None:
            low, high = np.maximum(low, self.bounds[0]), np.minimum(high, self.bounds[1])
        for k in range(self.terms.components):
            reaction = Polynomial(self.terms.reaction_of(k)) + Polynomial([0, self.terms.growth[k]])
            high[:, k] = _held(reaction, high[:, k])
            low[:, k] = -_held(-reaction(Polynomial([0, -1])), -low[:, k])
        above = u.max(axis=batch.grid) - high[:, None]
        return np.maximum(above, low[:, None] - u.min(axis=batch.grid)), self._pointwise(batch)

    def below(self, batch: _OutputBatch) -> tuple[Moments, Moments]:
        return -batch.w[:, 1:].min(axis=batch.grid), self._pointwise(batch)

    def _pointwise(self, batch: _OutputBatch) -> Moments:
        """Upper bound of the error of u at any point, from L² norms and the number of modes."""
        modes = self.terms.components * self.solving.weights.sum()
        return math.sqrt(modes) * batch.error[:, 1:] + (batch.slack - batch.error)[:, 1:]


def _held(reaction: Polynomial, top: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
    """An upper bound of all solutions of u' = R(u) that start at u <= top."""
    roots = reaction.trim().roots()
    real = np.sort(np.real(roots[np.abs(np.imag(roots)) < 1e-9 * (1 + np.abs(roots))]))
    upward = np.append(real, np.inf)[np.searchsorted(real, top)]
    return np.where(reaction(top) > 0, upward, top)
