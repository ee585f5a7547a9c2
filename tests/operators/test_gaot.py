"""GAOT against the released function written out query by query, in float64."""

import pytest
import torch

from operators.models.gaot import GAOT
from operators.nn.neighbours import Lattice, standardized, statistics, summed
from tests.operators.drawn import same, shaken
from tests.oracles.plain_gaot import PlainGAOT, neighbours

VARIANTS = [
    {},
    {"attention": "dot", "scales": [1.0, 2.0], "scale_weights": True, "depth": 3},
    {"lattice": [8, 4], "radius": 0.5, "scales": [0.5, 1.0], "depth": 4, "width": 24},
    {"dim": 1, "lattice": 12, "radius": 0.04, "patch": 4, "depth": 1},
]


def small(**settings):
    torch.manual_seed(0)
    return GAOT(
        **{"lattice": 8, "radius": 0.3, "channels": 4, "hidden": 6, "kernel_depth": 2,
           "width": 16, "depth": 2, "heads": 4, "scaling": "unit"} | settings
    )  # fmt: skip


def cloud(n, dim=2, *samples):
    torch.manual_seed(3)
    return torch.rand(*samples, n, dim, dtype=torch.float64)


@pytest.mark.parametrize("variant", VARIANTS)
def test_is_the_released_operator_written_out(variant):
    """Output and gradients. Some nodes have no neighbour, and the points y are others than x."""
    model = shaken(small(in_channels=2, out_channels=3, **variant))
    x, y = cloud(30, model.dim), cloud(47, model.dim)[30:]
    a = torch.randn(2, 30, 2, dtype=torch.float64)
    nodes = model.lattice.points(x)
    counts = [len(near) for near in neighbours(2 * x - 1, nodes, model.radii[0])]
    assert 0 in counts
    assert max(counts) > 1
    found, expected = model(a, x, y), PlainGAOT(model)(a, x, y)
    same(found, expected, model, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("radius", [0.05, 0.3, 2 / 7, 1.3])  # one is a step of the lattice
def test_candidates_hold_every_neighbour_once(dim, radius):
    lattice, p = Lattice([8, 5][:dim]), 3 * cloud(50, dim) - 1.5  # beyond the lattice too
    p[0] = -1 + 2 / 7 if dim == 1 else torch.tensor([-1 + 2 / 7, 0.0], dtype=torch.float64)
    edges = lattice.edges(p[None], radius, to_nodes=True)
    nodes = lattice.points(p)
    for i, (of, near) in enumerate(zip(edges.nodes[0], edges.near[0], strict=True)):
        distances = (nodes - p[i]).norm(dim=1)
        expected = torch.nonzero(distances <= radius * (1 + 1e-9))[:, 0]
        assert torch.equal(of[near].sort().values, expected)


def test_empty_neighbourhoods_are_zero():
    lattice = Lattice([4, 4])
    x = torch.tensor([[[-1.0, -1.0], [-0.9, -1.0]]])
    edges = lattice.edges(x, 0.2, to_nodes=True)
    found = statistics(edges)[0]
    assert torch.count_nonzero(found[1:]) == 0
    assert found[0, 0] == 2
    model = small(lattice=4, radius=0.2, patch=2)
    shares = model.encoder.shares(edges)
    torch.testing.assert_close(summed(shares[..., None], edges)[0, :, 0], torch.eye(16)[0])
    far = torch.full((5, 2), 9.0)  # beyond all nodes
    u = model(torch.randn(2, 7, 1), torch.rand(7, 2), far)
    assert torch.equal(u, u[:1, :1].expand_as(u))  # what an empty neighbourhood gives
    assert torch.isfinite(u).all()


def test_standardized_features_do_not_see_padding_and_keep_constants():
    f = torch.randn(2, 9, 3, dtype=torch.float64)
    f[..., 2] = 5.0
    real = torch.arange(9) < torch.tensor([[9], [6]])
    found = standardized(f, real)
    torch.testing.assert_close(found[1, :6], standardized(f[1:, :6], None)[0])
    torch.testing.assert_close(found[0, :, :2].std(dim=0), torch.ones(2).double())
    assert torch.equal(found[..., 2], torch.zeros(2, 9).double())
    assert torch.isfinite(standardized(f[:, :1], None)).all()


def test_padding_does_not_scale_the_domain():
    model = shaken(small(scaling="sample"))
    x, a = cloud(40, 2, 3), torch.randn(3, 40, 1, dtype=torch.float64)
    counts = torch.tensor([40, 33, 17])
    mask = torch.arange(40) < counts[:, None]
    y = cloud(40, 2, 3).flip(1)
    for points in (None, y):
        found = model(a, torch.where(mask[..., None], x, 9.0), points, mask)
        for i, n in enumerate(counts):
            at = None if points is None else y[i]
            alone = model(a[i : i + 1, :n], x[i, :n], at)[0]
            torch.testing.assert_close(found[i, : len(alone)], alone, rtol=1e-10, atol=1e-10)


def test_scaled_coordinates_do_not_see_place_and_size_of_the_domain():
    model = shaken(small(scaling="sample"))
    x, y, a = cloud(40), cloud(9), torch.randn(2, 40, 1, dtype=torch.float64)
    scale, place = torch.tensor([3.0, 40.0]), torch.tensor([-7.0, 5.0])
    torch.testing.assert_close(model(a, scale * x + place, scale * y + place), model(a, x, y))
    other = shaken(small(scaling="unit"))
    assert not torch.allclose(other(a, 0.9 * x, 0.9 * y), other(a, x, y))
