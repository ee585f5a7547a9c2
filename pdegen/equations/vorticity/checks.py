"""Checks of a store of the vorticity equation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    Values,
    error_range,
    worst_time,
)
from pdegen.checks.evolution import Evolution
from pdegen.checks.gaussian import GaussianCheck, torus_modes
from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import Torus
from pdegen.sampling.gaussian import TorusGaussianField


@dataclass(frozen=True)
class VorticityClaims:
    """The accuracy that the solver guarantees."""

    tolerance: float  # largest error at the certified times
    certified: Float[np.ndarray, " times"]  # True at the times when the flow is predictable
    budget: float  # largest relative violation of the budgets of energy and enstrophy
    folded: bool  # whether striding aliases modes of the solver on the output grid


def vorticity_checks(
    field: TorusGaussianField | None, n: int, solved: VorticityClaims, evolved: Evolution
) -> StoreChecks:
    """Checks of a store: a is a Gaussian field, and u obeys the equation and the energy budget.

    The mean of u stays 0. The energy E = ⟨|∇ψ|²⟩/2 changes by the work of the force minus the
    dissipation: E(t) = E(0) + ∫(⟨ψf⟩ - ν⟨w²⟩). The solver computes this integral, and the store
    contains it. The budget therefore shows that u is a solution for a, even at times when the flow
    is not predictable. Each frame must follow from the previous frame by the equation. The output
    grid resolves nearly all of the energy, which decays as k⁻³. Aliasing adds some of the
    unresolved energy to lower modes, including the mean.

    Args:
        field: Distribution of a; None if striding aliases modes of a, which changes it.
        n: Points of the output along each axis.
        solved: Accuracy of the solver.
        evolved: The equation and its frames.
    """
    flow = _Stored(n, solved)
    gaussian = []
    if field is not None:
        variance = np.full((n, n), field.pointwise_variance)
        modes = torus_modes(field, n)
        gaussian = [GaussianCheck("a", lambda a: a.astype(np.float64), modes, variance, True)]
    return StoreChecks(
        (
            *gaussian,
            Distinct("a"),
            Bound("error", "the solver's error", flow.error),
            Bound("error", "minus the solver's error", flow.least_error),
            Bound("budget", "the budgets", lambda v: (np.abs(v["budget"]), solved.budget)),
            *(() if solved.folded else (Bound("u", "the mean", flow.mean),)),
            Bound("u", "the distance from the budget of energy", flow.energy),
            *evolved.checks(),
        )
    )


class _Stored:
    """Methods that return a quantity of each sample, with the upper limit of the quantity."""

    def __init__(self, n: int, solved: VorticityClaims) -> None:
        self._torus, self._solved = Torus((PeriodicGrid(n),) * 2, degree=1), solved
        # share of the energy in modes that the output grid does not resolve, or that alias
        self._hidden = 1 / n if solved.folded else max(1e-3, n**-2)

    def error(self, values: Values) -> tuple[np.ndarray, float]:
        certified = _rows(values["error"])[:, self._solved.certified]
        return certified.max(axis=1, initial=0.0), error_range(self._solved.tolerance)[1]

    def least_error(self, values: Values) -> tuple[np.ndarray, float]:
        return -_rows(values["error"]).min(axis=1), -error_range(self._solved.tolerance)[0]

    def mean(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = _frames(values)
        limit = EPSILON * abs(w).max(axis=(2, 3)) + np.finfo(np.float32).smallest_subnormal
        return worst_time(abs(w.mean(axis=(2, 3))), limit)

    def energy(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        energy = self._energies(_frames(values))
        start = self._energies(values["a"].astype(np.float64)[:, None])
        expected = start + _rows(values["work"])
        difference = abs(energy - expected) / (energy + start)
        return difference.max(axis=1), np.full(len(difference), self._hidden)

    def _energies(self, w: Float[np.ndarray, "b t n n"]) -> Float[np.ndarray, "b t"]:
        torus = self._torus
        density = -torus.inverse_laplacian * torus.weights / 2
        return np.sum(density * np.abs(torus.to_modes(w)) ** 2, axis=(-2, -1))


def _frames(values: Values) -> Float[np.ndarray, "batch times n n"]:
    u = values["u"].astype(np.float64)
    return u if u.ndim == 4 else u[:, None]


def _rows(values: np.ndarray) -> Float[np.ndarray, "batch times"]:
    return values.reshape(len(values), -1)
