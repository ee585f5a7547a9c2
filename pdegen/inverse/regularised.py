"""A penalised fit whose weight the data themselves choose: by their noise, or by the L-curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.inverse.covariance import Covariance
from pdegen.inverse.phases import Field, Level
from pdegen.inverse.variation import Penalty

_FALLS = 0.025  # part by which the misfit falls at least, or a smaller weight says no more
_TOLERANCE = 1e-9  # of the objective, relative


class Minimiser(NamedTuple):
    """Of one weight.

    weight: λ.
    fraction: p of the upper phase, in each cell.
    misfit: rᵀ R⁻¹ r/m for m data.
    penalty: P(p).
    solves: Systems of equations since the weight before.
    """

    weight: float
    fraction: Field
    misfit: float
    penalty: float
    solves: int


@dataclass(frozen=True)
class PenalisedFit:
    """Minimises ½ rᵀ R⁻¹ r/m + λ P(p) over 0 <= p <= 1, r = d - H u(p), for one λ after another.

    Each minimiser is the start of the next, by L-BFGS-B with the adjoint gradient.

    Args:
        level: H and u; of its prior only the cells are used.
        penalty: P.
        iterations: For each weight, at most; twice as many for the first.
    """

    level: Level
    penalty: Penalty
    iterations: int = 50

    def path(
        self, data: Float[np.ndarray, " *data"], covariance: Covariance, weights: Sequence[float]
    ) -> Iterator[Minimiser]:
        """The minimisers, from p = 1/2.

        Args:
            data: d, without the mean error of the model.
            covariance: R.
            weights: λ > 0; from large to small the minimisers follow each other closely.
        """
        n, level = self.level.prior.grid.n, self.level
        p, limit = np.full((n, n), 0.5), 2 * self.iterations

        def fit(p: Field) -> tuple[float, Field]:
            """½ rᵀ R⁻¹ r/m, and its gradient."""
            at = level.forward.linearise(p)
            r: np.ndarray = data - level.observation(at.u)
            weighted = covariance.inverse(r)
            down = at.vjp(level.observation.transposed(weighted))
            return 0.5 * float(np.sum(r * weighted)) / r.size, -down / r.size

        for weight in weights:

            def objective(flat: np.ndarray, weight: float = weight) -> tuple[float, np.ndarray]:
                # over λ, so that the tolerance, absolute below 1, is one of P
                (value, gradient), (varies, slope) = (
                    f(flat.reshape(n, n)) for f in (fit, self.penalty)
                )
                return value / weight + varies, (gradient / weight + slope).ravel()

            found = scipy.optimize.minimize(
                objective, p.ravel(), jac=True, method="L-BFGS-B", bounds=[(0, 1)] * n**2,
                options={"maxiter": limit, "maxcor": 20, "ftol": _TOLERANCE},
            )  # fmt: skip
            flat: np.ndarray = found.x
            p, limit = flat.reshape(n, n), self.iterations
            penalty, _ = self.penalty(p)
            value: float = found.fun
            misfit = 2 * weight * (value - penalty)
            yield Minimiser(weight, p, misfit, penalty, 2 * int(found.nfev))


def by_discrepancy(
    fit: PenalisedFit, data: np.ndarray, covariance: Covariance, weights: Sequence[float]
) -> tuple[Minimiser, int]:
    """The minimiser of the first weight at which the data fit, rᵀ R⁻¹ r <= m, and all solves.

    Where no weight does it is that of the last one.

    Args:
        fit: P and u.
        data: d.
        covariance: R, of the noise, which is known, and of the model's error.
        weights: From large to small.

    References: V. Morozov, On the solution of functional equations by the method of regularization,
    Soviet Math. Dokl. 7 (1966).
    """
    found, solves = None, 0
    for found in fit.path(data, covariance, weights):
        solves += found.solves
        if found.misfit <= 1:
            break
    assert found is not None
    return found, solves


def by_l_curve(
    fit: PenalisedFit, data: np.ndarray, covariance: Covariance, weights: Sequence[float]
) -> tuple[Minimiser, int]:
    """The minimiser at the corner of the L-curve, and all solves. See `corner`.

    The weights end where the misfit falls no more.

    Args:
        fit: P and u.
        data: d.
        covariance: R up to a factor, which need not be known.
        weights: From large to small.
    """
    found = list[Minimiser]()
    for one in fit.path(data, covariance, weights):
        found.append(one)
        if len(found) > 3 and one.misfit > (1 - _FALLS) * found[-2].misfit:
            break
    solves = sum(one.solves for one in found)
    curve = [one for one in found if one.misfit > 0 and one.penalty > 0]  # else p is constant
    if len(curve) < 3:
        return found[-1], solves
    return curve[corner([m.misfit for m in curve], [m.penalty for m in curve])], solves


def corner(misfits: Sequence[float], penalties: Sequence[float]) -> int:
    """Where the curve of log misfit and log penalty bends most: the place among the weights.

    The curvature at a point is that of the circle through it and its neighbours, with the sign of
    the bend from falling misfits to growing penalties; at both ends there is none.

    Args:
        misfits, penalties: Positive, by weights from large to small.

    Raises:
        ValueError: On fewer than three weights.

    References: P. Hansen and D. O'Leary, The use of the L-curve in the regularization of discrete
    ill-posed problems, SIAM J. Sci. Comput. 14 (1993); A. Cultrera and L. Callegaro, A simple
    algorithm to find the L-curve corner in the regularisation of ill-posed inverse problems, IOP
    SciNotes 1 (2020), equations 4 and 5, for the circle.

    >>> corner([100.0, 10.0, 1.0, 0.9, 0.8], [1.0, 1.1, 1.2, 12.0, 120.0])
    2
    """
    if len(misfits) < 3:
        raise ValueError(f"a corner needs at least 3 weights, got {len(misfits)}")
    if min(*misfits, *penalties) <= 0:
        raise ValueError("misfits and penalties of an L-curve must be positive")
    points = np.log(np.stack([misfits, penalties], axis=1))
    before, after = points[1:-1] - points[:-2], points[2:] - points[1:-1]
    # of misfits to the left and penalties upwards the bend is clockwise
    area = before[:, 1] * after[:, 0] - before[:, 0] * after[:, 1]
    sides = [np.linalg.norm(side, axis=1) for side in (before, after, before + after)]
    return 1 + int(np.argmax(2 * area / np.maximum(np.prod(sides, axis=0), 1e-300)))
