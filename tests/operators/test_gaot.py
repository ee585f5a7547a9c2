"""GAOT against the released function written out query by query, in float64."""

import math

import pytest
import torch

from operators.models.gaot import GAOT
from operators.nn.neighbours import Lattice, ends, of_queries, standardized, statistics, summed
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


def test_statistics_are_those_of_the_neighbours():
    x = cloud(60)
    lattice = Lattice([4, 3])
    edges = lattice.edges(2 * x[None] - 1, 0.8, to_nodes=True)
    for q, row in zip(lattice.points(x), statistics(edges)[0], strict=True):
        p = (2 * x - 1)[((2 * x - 1) - q).norm(dim=1) <= 0.8]
        d = (p - q).norm(dim=1)
        values = torch.linalg.eigvalsh(torch.cov(p.T, correction=0)).flip(0)
        expected = torch.cat([torch.stack([torch.tensor(float(len(p))), d.mean(),
                              d.var(correction=0)]), p.mean(0) - q, values])  # fmt: skip
        torch.testing.assert_close(row, expected)


def test_standardized_features_do_not_see_padding_and_keep_constants():
    f = torch.randn(2, 9, 3, dtype=torch.float64)
    f[..., 2] = 5.0
    real = torch.arange(9) < torch.tensor([[9], [6]])
    found = standardized(f, real)
    torch.testing.assert_close(found[1, :6], standardized(f[1:, :6], None)[0])
    torch.testing.assert_close(found[0, :, :2].std(dim=0), torch.ones(2).double())
    assert torch.equal(found[..., 2], torch.zeros(2, 9).double())
    assert torch.isfinite(standardized(f[:, :1], None)).all()


def test_shares_of_neighbours_sum_to_one():
    for attention in ("cosine", "dot"):
        part = shaken(small(attention=attention)).encoder
        edges = Lattice([8, 8]).edges(2 * cloud(40)[None] - 1, 0.3, to_nodes=True)
        shares = part.shares(edges)
        assert torch.count_nonzero(shares[~edges.near]) == 0
        total = of_queries(summed(shares[..., None], edges), edges)[..., 0]
        torch.testing.assert_close(total[edges.near], torch.ones_like(total[edges.near]))
        source, query = ends(edges)
        away = (source - query).norm(dim=-1)
        assert float(away[edges.near].max()) <= 0.3


def test_sums_over_neighbours_have_the_gradient_of_differences():
    torch.manual_seed(0)
    part = shaken(small(attention="dot")).encoder
    x = 2 * cloud(12)[None] - 1
    lattice = Lattice([4, 4])

    def sums(f, p):
        return part(f, lattice.edges(p, 0.9, to_nodes=True))

    f = torch.randn(1, 12, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sums, (f, x.clone().requires_grad_()), atol=1e-6)


def test_refinement_of_a_cloud_converges():
    """With a softmax for weights the sums are means over random points: errors fall as n^-1/2.

    Counts have a part of order n^-1/2 too, standardised by their deviation, which the edges of
    the domain dominate.
    """
    model = shaken(small(radius=0.6, scaling="sample")).eval()
    y = torch.rand(20, 2, dtype=torch.float64)

    def values(x):
        a = torch.sin(2 * torch.pi * x).prod(-1, keepdim=True)[None] + 0.3
        with torch.no_grad():
            return model(a, x, y)[0]

    torch.manual_seed(0)
    limit = values(torch.rand(100_000, 2, dtype=torch.float64))

    def error(n):
        torch.manual_seed(n)
        draws = [torch.rand(n, 2, dtype=torch.float64) for _ in range(6)]
        errors = [(values(x) - limit).norm() / limit.norm() for x in draws]
        return math.sqrt(sum(float(e) ** 2 for e in errors) / 6)

    coarse, fine = error(1000), error(8000)
    assert fine < coarse / 1.9  # 2.7 by the law with that of the limit, and six draws of each
    assert fine < 0.05


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


def test_a_patch_holds_its_nodes_and_knows_its_place():
    model = small(lattice=[4, 6], patch=2)
    u = torch.arange(24.0)[None, :, None].expand(1, 24, 4)
    assert torch.equal(PlainGAOT(model).patches(u)[0][0, 1, ::4], torch.tensor([2.0, 3, 8, 9]))
    p = model.processor.positions(torch.zeros(1, 16))
    assert p.shape == (6, 16)
    torch.testing.assert_close(p[4, [0, 4, 8, 12]], torch.tensor([1.0, 1, 1, 1]).mul(
        torch.tensor([math.sin(1), math.cos(1), math.sin(1), math.cos(1)])))  # fmt: skip
