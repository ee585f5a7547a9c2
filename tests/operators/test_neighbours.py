"""GAOT and UPT: neighbourhoods, supernodes, padding, and domains of any place and size."""

import math

import pytest
import torch

from operators.models.gaot import GAOT
from operators.models.upt import BITS, UPT, places_on_curve, points_near, supernodes
from operators.nn.neighbours import Lattice, standardized, statistics, summed
from tests.operators.drawn import points, shaken


def gaot(**settings):
    torch.manual_seed(0)
    return GAOT(
        **{"lattice": 8, "radius": 0.3, "channels": 4, "hidden": 6, "kernel_depth": 2,
           "width": 16, "depth": 2, "heads": 4, "scaling": "unit"} | settings
    )  # fmt: skip


def upt(**settings):
    torch.manual_seed(0)
    return UPT(**{"supernodes": 6, "radius": 0.3, "neighbours": 30, "latents": 5,
                  "encoder_width": 12, "width": 18, "decoder_width": 8, "encoder_heads": 3,
                  "heads": 2, "decoder_heads": 4} | settings).eval()  # fmt: skip


def cloud(n, dim=2, *samples):
    torch.manual_seed(3)
    return torch.rand(*samples, n, dim, dtype=torch.float64)


@pytest.mark.parametrize("make", [gaot, upt])
def test_scaled_coordinates_do_not_see_place_and_size_of_the_domain(make):
    model = shaken(make(scaling="sample"))
    x, y, a = cloud(40), cloud(9), torch.randn(2, 40, 1, dtype=torch.float64)
    scale, place = torch.tensor([3.0, 40.0]), torch.tensor([-7.0, 5.0])
    torch.testing.assert_close(model(a, scale * x + place, scale * y + place), model(a, x, y))
    other = shaken(make(scaling="unit"))
    assert not torch.allclose(other(a, 0.9 * x, 0.9 * y), other(a, x, y))


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
    model = gaot(lattice=4, radius=0.2, patch=2)
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
    model = shaken(gaot(scaling="sample"))
    x, a = cloud(40, 2, 3), torch.randn(3, 40, 1, dtype=torch.float64)
    counts = torch.tensor([40, 33, 17])
    mask = torch.arange(40) < counts[:, None]
    y = cloud(40, 2, 3).flip(1)
    for of in (None, y):
        found = model(a, torch.where(mask[..., None], x, 9.0), of, mask)
        for i, n in enumerate(counts):
            at = None if of is None else y[i]
            alone = model(a[i : i + 1, :n], x[i, :n], at)[0]
            torch.testing.assert_close(found[i, : len(alone)], alone, rtol=1e-10, atol=1e-10)


def test_points_far_outside_of_all_neighbourhoods_have_no_scores():
    """A "dot" score grows with the distance, and its exponential is infinite far away."""
    model = shaken(gaot(attention="dot"))
    x, a = cloud(40, 2, 2), torch.randn(2, 40, 1, dtype=torch.float64)
    mask = torch.arange(40) < torch.tensor([[40], [30]])
    places = torch.full_like(x, 0.5), 1e5 * torch.randn_like(x)  # in all directions
    near, far = (model(a, torch.where(mask[..., None], x, p), None, mask) for p in places)
    torch.testing.assert_close(far[mask], near[mask])
    assert torch.isfinite(torch.autograd.grad(far[mask].sum(), model.encoder.key.weight)[0]).all()
    assert torch.isfinite(model(a, x[0], places[1][0])).all()


def test_a_draw_is_uniform():
    """Each of 10 points is one of 3 supernodes with probability 0.3; pairs of them are alike."""
    torch.manual_seed(0)
    index = supernodes(torch.rand(4000, 10, 2), 3, True).index
    counts = torch.zeros(4000, 10).scatter_add(1, index, torch.ones(4000, 3))
    assert int(counts.max()) == 1
    std = math.sqrt(0.3 * 0.7 / 4000)
    assert float((counts.mean(0) - 0.3).abs().max()) < 4 * std
    pairs = (counts.T @ counts / 4000).fill_diagonal_(6 / 90)
    assert float((pairs - 6 / 90).abs().max()) < 5 * math.sqrt(6 / 90 / 4000)


@pytest.mark.parametrize("dim", [1, 2])
def test_places_on_the_curve_are_bits_in_turn(dim):
    p = torch.rand(1, 50, dim, dtype=torch.float64)
    p[0, :2] = torch.tensor([[0.0] * dim, [1.0] * dim])
    for one, place in zip(p[0], places_on_curve(p)[0].tolist(), strict=True):
        cells = [min(int(t * 2**BITS + 0.125), 2**BITS - 1) for t in one.tolist()]
        words = [f"{cell:0{BITS}b}" for cell in cells]
        expected = "".join("".join(bits) for bits in zip(*reversed(words), strict=True))
        assert place == int(expected, 2)


def test_supernodes_are_a_function_of_the_set_of_points():
    x, order = cloud(200), torch.randperm(200)
    chosen = supernodes(x[None], 17, False).index[0]
    assert chosen.unique().numel() == 17
    assert torch.equal(order[supernodes(x[order][None], 17, False).index[0]], chosen)
    assert torch.equal(supernodes(x[None].float(), 17, False).index[0], chosen)
    assert torch.equal(
        supernodes(torch.tensor([3.0, 7.0]) * x[None] - 2, 17, False).index[0], chosen
    )


@pytest.mark.parametrize("random", [False, True])
def test_padding_is_no_supernode_and_each_point_is_one_at_most(random):
    x, counts = cloud(20, 2, 4), torch.tensor([20, 9, 5, 1])
    mask = torch.arange(20) < counts[:, None]
    mask = mask.gather(1, torch.stack([torch.randperm(20) for _ in range(4)]))
    index, real = supernodes(x, 6, random, mask)
    assert index.shape == (4, 6)
    assert real.sum(1).tolist() == [6, 6, 5, 1]
    for one, some, there, alone in zip(index, real, mask, x, strict=True):
        assert there[one[some]].all()
        assert one[some].unique().numel() == int(some.sum())
        if not random:
            places = torch.nonzero(there)[:, 0]
            expected = places[supernodes(alone[there][None], 6, False).index[0]]
            assert torch.equal(one[some], expected)


@pytest.mark.parametrize("padded", [False, True])
def test_neighbours_are_the_nearest_points_within_the_radius(padded, monkeypatch):
    monkeypatch.setattr("operators.models.upt.ENTRIES", 150)  # a few centres at a time
    x = cloud(40, 2, 3)
    mask = torch.arange(40) < torch.tensor([[40], [33], [3]]) if padded else None
    index, near = points_near(x[:, :3], x, 0.25, 5, mask)
    assert index.shape == (3, 3, 5)
    full = 0
    for b in range(3):
        n = 40 if mask is None else int(mask[b].sum())
        for s in range(3):
            distances = (x[b, :n] - x[b, s]).norm(dim=1)
            expected = [int(p) for p in distances.argsort()[:5] if distances[p] <= 0.25]
            assert sorted(index[b, s][near[b, s]].tolist()) == sorted(expected)
            full += int((distances <= 0.25).sum()) > 5
    assert full > 0


def test_points_at_one_distance_are_neighbours_alike():
    """On a grid: 1, 4 more, 4 more, 4 more; with room for 7 it is 5. Copies of a point stay."""
    x = points(13, 13)[:9, :9].flatten(0, 1)[None]
    for grid in (x, x.float()):
        for most, count in ((13, 13), (12, 9), (9, 9), (7, 5), (5, 5), (4, 1), (1, 1)):
            index, near = points_near(grid[:, 40:41], grid, 1.0, most)
            assert int(near.sum()) == count
            assert 40 in index[near]
        assert int(points_near(grid[:, 40:41], grid, 1 / 13, 20)[1].sum()) == 5  # the end included
    copies = torch.zeros(1, 6, 2)
    assert int(points_near(copies[:, :1], copies, 0.1, 3)[1].sum()) == 3
