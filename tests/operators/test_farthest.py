"""Farthest points against a loop over points, and PiT with latent points that are chosen so."""

import math
import re

import pytest
import torch

from operators.models.pit import PiT
from operators.nn.neighbours import farthest_points
from operators.nn.tokens import SquaredDistance
from pdegen.schema import SchemaError
from pipelines.config.declared import parse_model
from tests.operators.drawn import shaken


def cloud(n, dim=2, seed=0):
    return torch.rand(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plain(points, count, periodic):
    """Point by point, with lists: the first is the least in the direction (1, √2, √3)."""

    def distance(p, q):
        gaps = [abs(s - t) for s, t in zip(p, q, strict=True)]
        return math.hypot(*[min(g, 1 - g) if periodic else g for g in gaps])

    def first(of):
        return min(of, key=lambda j: sum(s * math.sqrt(i + 1) for i, s in enumerate(points[j])))

    chosen = [first(range(len(points)))]
    while len(chosen) < count:
        nearest = [min(distance(p, points[c]) for c in chosen) for p in points]
        chosen.append(first([j for j, d in enumerate(nearest) if d > 0.999995 * max(nearest)]))
    return chosen


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_points_are_those_of_a_loop(dim, periodic):
    grid = torch.stack(torch.meshgrid(*[torch.arange(4.0) / 4] * dim, indexing="ij"), -1)
    for x in (cloud(40, dim), grid.flatten(0, -2).double()):  # on the grid there are ties
        count = min(12, len(x))
        expected = plain(x.tolist(), count, periodic)
        assert farthest_points(x[None], count, periodic)[0].tolist() == expected


def test_they_depend_neither_on_the_order_nor_on_the_batch_nor_on_padding():
    x, order = torch.stack([cloud(50, seed=s) for s in range(3)]), torch.randperm(50)
    mask = torch.arange(50) < torch.tensor([[50], [31], [5]])
    together = farthest_points(x, 8, mask=mask)
    for one, real, chosen in zip(x, mask, together, strict=True):
        assert torch.equal(farthest_points(one[real][None], 8)[0], chosen)
    assert torch.equal(x[:, order].gather(1, farthest_points(x[:, order], 8)[..., None].expand(
        -1, -1, 2)), x.gather(1, farthest_points(x, 8)[..., None].expand(-1, -1, 2)))  # fmt: skip
    assert together[2].unique().numel() == 5  # of five points, some are chosen twice


@pytest.mark.parametrize("n", [200, 800, 3200])
def test_refined_clouds_are_covered_as_evenly_by_as_many_points(n):
    """No point is farther from the chosen ones than these are from each other, whatever the density
    of the cloud: here one that falls by 20 from the left to the right."""
    x = cloud(n)
    x[:, 0] = x[:, 0] ** 3
    chosen = x[farthest_points(x[None], 25)[0]]
    distance = SquaredDistance(False, 1.0)
    radius = distance(x, chosen).amin(1).max().sqrt()
    gap = (distance(chosen, chosen) + 4 * torch.eye(25)).min().sqrt()
    assert radius <= gap
    # 25 discs of any cover have an area of 1 together: a radius of 0.11 at least, and twice that
    assert 0.11 < radius < 0.23


def test_pit_attends_to_the_points_that_are_chosen():
    """A plain composition, on the latent points of each sample."""
    torch.manual_seed(0)
    model = shaken(
        PiT(dim=2, width=8, depth=1, latent=9, latent_points="farthest", periodic=False,
            encoder_locality=30.0, decoder_locality=40.0, sharpening=False)
    )  # fmt: skip
    x = torch.stack([cloud(30, seed=s) for s in range(3)])
    a = torch.randn(3, 30, 1, dtype=torch.float64)
    gelu = torch.nn.functional.gelu
    for one, values, found in zip(x, a, model(a, x), strict=True):
        latent = one[plain(one.tolist(), 9, periodic=False)]
        u = gelu(model.embed(torch.cat([one, values], dim=-1)))[None]
        u = model.processor[0](model.down(u, one, latent), latent)
        torch.testing.assert_close(model.head(model.up(u, latent, one))[0], found)


def test_more_latent_points_than_points_and_impossible_settings_are_refused():
    model = PiT(dim=2, latent=9, latent_points="farthest", sharpening=False)
    with pytest.raises(ValueError, match="latent=9 needs as many points, got 8"):
        model(torch.zeros(2, 8, 1), torch.rand(8, 2))
    mask = torch.arange(12) < torch.tensor([[12], [8]])
    with pytest.raises(ValueError, match="latent=9 needs as many points, got 8"):
        model.eval()(torch.zeros(2, 12, 1), torch.rand(2, 12, 2), None, mask)
    for settings, message in (
        ({"latent": [4, 4]}, "needs one number latent, got [4, 4]"),
        ({"latent": "input"}, 'needs a latent mesh, which latent "input"'),
        ({"attention": "self-a"}, "self-a do not have"),
    ):
        with pytest.raises(SchemaError, match=re.escape(message)):
            parse_model({"name": "pit", "latent_points": "farthest", **settings})
    earlier = parse_model({"name": "pit", "preset": "darcy"})
    assert "latent_points" not in earlier.model_dump(mode="json")
