"""What a store of vorticity claims."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.checks.evolution import Evolution
from pdegen.checks.gaussian import EPSILON, GaussianLaw
from pdegen.checks.law import SMALLEST_ERROR, Bound, Distinct, Law, Values, worst_time
from pdegen.checks.modes import torus_modes
from pdegen.domains import PeriodicGrid
from pdegen.numerics.torus import Torus
from pdegen.sampling.torus import TorusGaussianField


@dataclass(frozen=True)
class VorticityClaims:
    """What the solver claims."""

    tolerance: float  # largest error where the flow is predictable
    certified: Float[np.ndarray, " times"]  # at which of the times it is
    budget: float  # largest relative violation of the budgets of energy and enstrophy
    folded: bool  # whether striding folds modes of the solver onto others of the output grid


def vorticity_law(
    field: TorusGaussianField | None, n: int, solved: VorticityClaims, evolved: Evolution
) -> Law:
    """a follows its Gaussian law, and u(t) the equation and what the flow conserves.

    The mean of u stays 0. The energy E = ⟨|∇ψ|²⟩/2 of u(t) is that of a and the work done since,
    E(t) = E(0) + ∫(⟨ψf⟩ - ν⟨w²⟩), which the solver stored: so u belongs to a, also where the flow
    cannot be predicted. Frames follow from one another by the equation. The output grid holds
    nearly all of the energy, which falls as k⁻³; folding shows some of the rest at lower modes, the
    mean among them.
    A field is None where striding has folded modes of a, which has no exact law here.
    """
    flow = _Stored(n, solved)
    gaussian = []
    if field is not None:
        variance = np.full((n, n), field.pointwise_variance)
        modes = torus_modes(field, n)
        gaussian = [GaussianLaw("a", lambda a: a.astype(np.float64), modes, variance, True)]
    return Law(
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
    """Quantities of each sample that are bounded, with their limits."""

    def __init__(self, n: int, solved: VorticityClaims) -> None:
        self._torus, self._solved = Torus((PeriodicGrid(n),) * 2, degree=1), solved
        # of the energy: in modes that the output grid does not hold, or that it folds
        self._hidden = 1 / n if solved.folded else max(1e-3, n**-2)

    def error(self, values: Values) -> tuple[np.ndarray, float]:
        certified = _rows(values["error"])[:, self._solved.certified]
        return certified.max(axis=1, initial=0.0), self._solved.tolerance

    def least_error(self, values: Values) -> tuple[np.ndarray, float]:
        return -_rows(values["error"]).min(axis=1), -SMALLEST_ERROR

    def mean(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = _frames(values)
        limit = EPSILON * abs(w).max(axis=(2, 3)) + np.finfo(np.float32).smallest_subnormal
        return worst_time(abs(w.mean(axis=(2, 3))), limit)

    def energy(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        energy = self._energies(_frames(values))
        start = self._energies(values["a"].astype(np.float64)[:, None])
        expected = start + _rows(values["work"])
        off = abs(energy - expected) / (energy + start)
        return off.max(axis=1), np.full(len(off), self._hidden)

    def _energies(self, w: Float[np.ndarray, "b t n n"]) -> Float[np.ndarray, "b t"]:
        torus = self._torus
        density = -torus.inverse_laplacian * torus.weights / 2
        return np.sum(density * np.abs(torus.to_modes(w)) ** 2, axis=(-2, -1))


def _frames(values: Values) -> Float[np.ndarray, "batch times n n"]:
    u = values["u"].astype(np.float64)
    return u if u.ndim == 4 else u[:, None]


def _rows(values: np.ndarray) -> Float[np.ndarray, "batch times"]:
    return values.reshape(len(values), -1)
