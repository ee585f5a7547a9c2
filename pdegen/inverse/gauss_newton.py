"""The linear system of a Gauss-Newton step, and the criterion that ends the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

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
