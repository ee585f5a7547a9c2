import numpy as np
import pytest
import torch

from operators.transforms import BurgersSymmetries, Normalizer
from pdegen.burgers import ColeHopf
from pdegen.grid import PeriodicGrid


def test_normalizer_gives_mean_zero_and_deviation_one_and_back():
    v = torch.randn(50, 8, 2) * torch.tensor([3.0, 0.1]) + torch.tensor([1.0, -2.0])
    normalizer = Normalizer.of(v)
    w = normalizer(v)
    assert w.flatten(0, 1).mean(0).abs().max() < 1e-5
    assert (w.flatten(0, 1).std(0, correction=0) - 1).abs().max() < 1e-5
    torch.testing.assert_close(normalizer.inverse(w), v)


def test_normalizer_refuses_a_constant_channel():
    with pytest.raises(ValueError, match="positive deviations"):
        Normalizer.of(torch.ones(4, 8, 1))


@pytest.mark.parametrize(("shift", "reflection"), [(True, False), (False, True), (True, True)])
def test_symmetries_map_solutions_to_solutions(shift, reflection):
    """The solver applied to the transformed input gives the transformed target."""
    solve = ColeHopf(PeriodicGrid(128), viscosity=0.02)
    x = solve.grid.x
    a = np.stack([np.sin(2 * np.pi * x + s) + 0.4 * np.cos(6 * np.pi * x) for s in range(6)])
    u = solve(a, t=0.2)
    torch.manual_seed(0)
    symmetry = BurgersSymmetries(shift, reflection)
    b, v = symmetry(torch.from_numpy(a)[..., None], torch.from_numpy(u)[..., None])
    np.testing.assert_allclose(solve(b[..., 0].numpy(), t=0.2), v[..., 0].numpy(), atol=1e-12)
    moved = [i for i in range(6) if not np.allclose(b[i, :, 0], a[i])]
    assert moved, "nothing was transformed"
