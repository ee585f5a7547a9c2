"""Chains of segments, beside one dense system."""

import numpy as np
import pytest
import torch

from pdegen.numerics.sines import solve_block_tridiagonal


def a_chain(segments=5, outer=3, inner=4, batch=2):
    rng = np.random.default_rng(0)
    size = 2 * outer + inner
    matrices = rng.standard_normal((segments, batch, size, size))
    matrices[:, :, outer, outer] = 0  # pivots are needed
    ends = rng.standard_normal((batch, segments + 1, outer))
    return matrices, ends, rng.standard_normal((batch, segments, inner))


def dense(matrices, ends, inner):
    segments, batch, size, _ = matrices.shape
    outer, step = ends.shape[2], ends.shape[2] + inner.shape[2]
    n = segments * step + outer
    whole, load = np.zeros((batch, n, n)), np.zeros((batch, n))
    for k, matrix in enumerate(matrices):
        here = slice(k * step, k * step + size)
        whole[:, here, here] += matrix
        load[:, k * step : k * step + step] = np.concatenate([ends[:, k], inner[:, k]], axis=1)
    load[:, -outer:] = ends[:, -1]
    found = np.linalg.solve(whole, load[..., None])[..., 0]
    parts = found[:, :-outer].reshape(batch, segments, step)
    last = found[:, None, -outer:]
    return np.concatenate([parts[..., :outer], last], axis=1), parts[..., outer:]


@pytest.mark.parametrize(("segments", "outer", "inner"), [(5, 3, 4), (1, 2, 1), (2, 1, 6)])
def test_a_chain_is_solved_as_one_system(segments, outer, inner):
    chain = a_chain(segments, outer, inner)
    pairs = zip(solve_block_tridiagonal(chain[0].copy(), *chain[1:]), dense(*chain), strict=True)
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_a_device_finds_the_same():
    matrices, ends, inner = a_chain()
    found = solve_block_tridiagonal(
        map(torch.tensor, matrices), torch.tensor(ends), torch.tensor(inner)
    )
    for one, expected in zip(found, dense(matrices, ends, inner), strict=True):
        np.testing.assert_allclose(one.numpy(), expected, rtol=0, atol=1e-11)
