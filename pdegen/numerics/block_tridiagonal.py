"""Block elimination for block-tridiagonal systems on a chain of segments."""

from __future__ import annotations

from collections.abc import Iterable

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array


def solve_block_tridiagonal(
    matrices: Iterable[Float[Array, "batch size size"]],
    ends: Float[Array, "batch segments+1 outer"],
    inner: Float[Array, "batch segments inner"],
) -> tuple[Float[Array, "batch segments+1 outer"], Float[Array, "batch segments inner"]]:
    """Solves Σ_k A_k (u_k, v_k, u_{k+1}) = (f, g). The matrices A_k are overwritten.

    The segments k - 1 and k share the unknowns u_k. The unknowns v_k belong to segment k alone.
    One dense factorisation with pivoting eliminates both u_k and v_k. The matrices may therefore be
    indefinite. Each matrix is used only once, so `matrices` may be a generator.

    Args:
        matrices: The A_k in order, which act on (u_k, v_k, u_{k+1}). The function changes these
            arrays in place.
        ends: f, the loads on u.
        inner: g, the loads on v.

    Raises:
        LinAlgError: If a block is singular.

    >>> import numpy as np
    >>> spring = np.array([[[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]])  # u, v, u: two springs
    >>> held = spring + np.diag([1.0, 0, 0])
    >>> loads = np.array([[[0.0], [0.0], [1.0]]])
    >>> u, v = solve_block_tridiagonal([held, spring], loads, np.zeros((1, 2, 1)))
    >>> u.ravel().round(12), v.ravel().round(12)
    (array([1., 3., 5.]), array([2., 4.]))
    """
    xp, outer = array_namespace(ends), ends.shape[2]
    cut = outer + inner.shape[2]
    carried, load = xp.zeros_like(ends[:, :1, :1]), ends[:, 0]
    solved = list[Array]()
    for k, matrix in enumerate(matrices):
        matrix[:, :outer, :outer] += carried
        right = xp.concat([load, inner[:, k]], axis=1)[..., None]
        columns = xp.concat([matrix[:, :cut, cut:], right], axis=2)
        solved.append(xp.linalg.solve(matrix[:, :cut, :cut], columns))
        below = matrix[:, cut:, :cut] @ solved[-1]
        carried = matrix[:, cut:, cut:] - below[..., :-1]
        load = ends[:, k + 1] - below[..., -1]
    u, v = [xp.linalg.solve(carried, load[..., None])[..., 0]], list[Array]()
    for part in reversed(solved):
        both = part[..., -1] - (part[..., :-1] @ u[-1][..., None])[..., 0]
        u.append(both[:, :outer])
        v.append(both[:, outer:])
    return xp.stack(u[::-1], axis=1), xp.stack(v[::-1], axis=1)
