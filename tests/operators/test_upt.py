"""UPT against the released code in other words, and which points are its supernodes."""

import math

import pytest
import torch

from operators.models.upt import UPT
from operators.nn.supernodes import BITS, places_on_curve, points_near, supernodes
from tests.operators.drawn import shaken
from tests.oracles.plain_upt import PlainUPT

SIZES = {"supernodes": 6, "radius": 0.3, "neighbours": 30, "latents": 5, "encoder_width": 12,
         "width": 18, "decoder_width": 8, "encoder_heads": 3, "heads": 2, "decoder_heads": 4,
         "encoder_depth": 1, "depth": 1, "decoder_depth": 1}  # fmt: skip


def small(**settings):
    torch.manual_seed(0)
    return shaken(UPT(**SIZES | settings)).eval()


def cloud(n, dim=2, *samples):
    torch.manual_seed(3)
    return torch.rand(*samples, n, dim, dtype=torch.float64)


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"encoder_depth": 2, "depth": 0, "decoder_depth": 2, "latents": 1},
        {"encoder_width": 15, "decoder_width": 10, "decoder_heads": 1, "extent": 200.0},  # zeros
        {"dim": 1, "radius": 0.05},
        {"supernodes": 50},  # all points
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_is_the_released_operator_with_its_gradients(variant, elsewhere):
    model = small(in_channels=2, out_channels=3, **variant)
    x, a = cloud(30, model.dim), torch.randn(2, 30, 2, dtype=torch.float64)
    y = cloud(47, model.dim)[30:] if elsewhere else x
    chosen = supernodes(x[None], model.supernodes, False).index[0]
    found = model(a, x, y if elsewhere else None)
    expected = PlainUPT(model)(a, x, y, chosen)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    parameters = list(model.parameters())
    ours, plain = (torch.autograd.grad(u.square().sum(), parameters) for u in (found, expected))
    for mine, theirs in zip(ours, plain, strict=True):
        size = float(theirs.abs().max())
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10 * max(size, 1))


def test_drawn_supernodes_give_the_released_operator_too():
    """In training, where those of each step are others."""
    model = small().train()
    x, a = cloud(30), torch.randn(2, 30, 1, dtype=torch.float64)
    drawn = []
    for seed in range(2):
        torch.manual_seed(seed)
        found = model(a, x)
        torch.manual_seed(seed)
        drawn.append(supernodes(x[None], 6, True).index[0])
        torch.testing.assert_close(found, PlainUPT(model)(a, x, x, drawn[-1]))
    assert set(drawn[0].tolist()) != set(drawn[1].tolist())
    still = small(random=False).train()
    assert torch.equal(still(a, x), still.eval()(a, x))


def test_a_draw_is_uniform():
    """Each of 10 points is one of 3 supernodes with probability 0.3; pairs of them are alike."""
    torch.manual_seed(0)
    index = supernodes(torch.rand(4000, 10, 2), 3, True).index
    counts = torch.zeros(4000, 10).scatter_add(1, index, torch.ones(4000, 3))
    assert int(counts.max()) == 1
    deviation = math.sqrt(0.3 * 0.7 / 4000)
    assert float((counts.mean(0) - 0.3).abs().max()) < 4 * deviation
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
    for one, some, points, alone in zip(index, real, mask, x, strict=True):
        assert points[one[some]].all()
        assert one[some].unique().numel() == int(some.sum())
        if not random:
            places = torch.nonzero(points)[:, 0]
            expected = places[supernodes(alone[points][None], 6, False).index[0]]
            assert torch.equal(one[some], expected)


@pytest.mark.parametrize("padded", [False, True])
def test_neighbours_are_the_nearest_points_within_the_radius(padded, monkeypatch):
    monkeypatch.setattr("operators.nn.supernodes.ENTRIES", 150)  # a few centres at a time
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
    axis = torch.arange(9, dtype=torch.float64) / 13
    x = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).flatten(0, 1)[None]
    for grid in (x, x.float()):
        for most, count in ((13, 13), (12, 9), (9, 9), (7, 5), (5, 5), (4, 1), (1, 1)):
            index, near = points_near(grid[:, 40:41], grid, 1.0, most)
            assert int(near.sum()) == count
            assert 40 in index[near]
        assert int(points_near(grid[:, 40:41], grid, 1 / 13, 20)[1].sum()) == 5  # the end included
    copies = torch.zeros(1, 6, 2)
    assert int(points_near(copies[:, :1], copies, 0.1, 3)[1].sum()) == 3


def test_scaled_coordinates_do_not_see_place_and_size_of_the_domain():
    model = small(scaling="sample")
    x, y, a = cloud(40), cloud(9), torch.randn(2, 40, 1, dtype=torch.float64)
    scale, place = torch.tensor([3.0, 40.0]), torch.tensor([-7.0, 5.0])
    torch.testing.assert_close(model(a, scale * x + place, scale * y + place), model(a, x, y))
    other = small(scaling="unit")
    assert not torch.allclose(other(a, 0.9 * x, 0.9 * y), other(a, x, y))
