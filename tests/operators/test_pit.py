"""PiT and its attentions against formulas written out point by point, in float64."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from operators.models.pit import PiT, PiT2025, mesh
from operators.nn import tokens
from operators.nn.tokens import (
    PositionAttention,
    SelfAttention,
    SelfPositionAttention,
    SquaredDistance,
    neighbours,
)
from tests.operators.drawn import points, shaken

PLAIN, TORUS = SquaredDistance(False, 1.0), SquaredDistance(True, 0.25)
ATTENTIONS = ["position", "self-position", "self-a", "self-b"]


def grid(dim, n, dtype=torch.float64):
    return points(*[n] * dim, dtype=dtype)


def small(**settings):
    torch.manual_seed(0)
    return PiT(
        **{"width": 8, "depth": 2, "latent": 8, "encoder_locality": 20.0, "decoder_locality": 30.0}
        | settings
    )


def cloud(n, seed=0):
    return torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def squared(y, x, periodic, scale):
    """The least squared distance of two points over all images of the second."""
    shifts = itertools.product(*[(-1, 0, 1) if periodic else (0,)] * len(y))
    return min(
        sum((p - q - s) ** 2 for p, q, s in zip(y, x, shift, strict=True)) for shift in shifts
    ) / (scale)


@pytest.mark.parametrize("periodic", [False, True])
def test_distance_is_the_least_over_all_images(periodic):
    y, x = cloud(7), cloud(9, seed=1)
    expected = [[squared(p, q, periodic, 2.0) for q in x.tolist()] for p in y.tolist()]
    d = SquaredDistance(periodic, 2.0)(y, x)
    torch.testing.assert_close(d, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("locality", [0.5, 2.0, 7.3, 25.0, 50.0, 99.9, 100.0])
def test_neighbours_are_those_up_to_the_percentile_of_numpy(locality):
    d = PLAIN(cloud(13), cloud(57, seed=1))
    radius = np.percentile(d.numpy(), locality, axis=1, keepdims=True)  # linear interpolation
    expected = d.numpy() <= radius
    expected |= d.numpy() == d.numpy().min(axis=1, keepdims=True)
    assert np.array_equal(neighbours(d, locality).numpy(), expected)


def test_neighbours_on_a_periodic_line_are_counted():
    x = points(201)
    # entry 4 of the sorted row, of 201, is the second pair of neighbours; 5 and 6 are the third
    assert neighbours(TORUS(x, x), 2.0).sum(1).unique().tolist() == [5]
    assert neighbours(TORUS(x, x), 2.5).sum(1).unique().tolist() == [7]
    assert neighbours(TORUS(x, x), 1e-6).sum(1).unique().tolist() == [1]


@pytest.mark.parametrize("n", [30, 141])
def test_rounding_of_the_coordinates_does_not_part_equal_distances(n):
    # in 32 bits the four nearest of a cell centre lie at several distances
    x, y = (
        points(n, n, kind="cell", dtype=torch.float32).flatten(0, 1),
        points(10, 10, kind="cell", dtype=torch.float32).flatten(0, 1),
    )
    single = neighbours(SquaredDistance(True, 0.5)(y, x), 2.0)
    exact = points(n, n, kind="cell").flatten(0, 1), points(10, 10, kind="cell").flatten(0, 1)
    assert torch.equal(single, neighbours(SquaredDistance(True, 0.5)(exact[1], exact[0]), 2.0))
    # one row is the next one, shifted: all have as many
    assert n % 10 or len(single.sum(1).unique()) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rate_is_positive_and_finite(dtype):
    layer = PositionAttention(3, 4, 4, 100.0, PLAIN).to(dtype)
    with torch.no_grad():
        layer.r.copy_(torch.tensor([0.0, math.pi / 2, -math.pi / 2, 7.0]))
    expected = [math.tan(math.pi / 4 * (1 - 1e-7) * (1 + math.sin(r))) for r in layer.r.tolist()]
    rate = layer.rate.detach()
    assert bool((rate >= 0).all())
    assert float(rate[0]) == pytest.approx(1.0, rel=1e-6)
    assert 1e6 < float(rate[1]) < 1e7  # tan has its pole 10⁻⁷ beyond
    # near the pole 32 bits hold one digit
    assert rate[[0, 3]].tolist() == pytest.approx([expected[0], expected[3]], rel=1e-5)


@pytest.mark.parametrize("heads", [1, 3, 400])
def test_rates_begin_in_a_range_of_the_variance_of_one_over_the_heads(heads):
    layers = [PositionAttention(3, heads, heads, 100.0, PLAIN) for _ in range(-(-400 // heads))]
    r = torch.cat([layer.r.detach() for layer in layers])
    limit = math.sqrt(3 / heads)
    assert 0.9 * limit < float(r.abs().max()) <= limit


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("locality", [20.0, 100.0])
def test_position_attention_equals_its_formula_point_by_point(periodic, locality):
    layer = shaken(PositionAttention(3, 4, 2, locality, SquaredDistance(periodic, 0.5)))
    x, y = cloud(21), cloud(5, seed=1)
    u = torch.randn(2, 21, 3, dtype=torch.float64)
    features = []
    for head in range(2):
        rate = math.tan(math.pi / 4 * (1 - 1e-7) * (1 + math.sin(float(layer.r[head].detach()))))
        v = u @ layer.value.weight[2 * head : 2 * head + 2].T
        rows = []
        for point in y.tolist():
            d = [squared(point, q, periodic, 0.5) for q in x.tolist()]
            inside = [j for j in range(21) if d[j] <= np.percentile(d, locality)]
            total = sum(math.exp(-rate * d[j]) for j in inside)
            rows.append(sum(math.exp(-rate * d[j]) / total * v[:, j] for j in inside))
        features.append(torch.stack(rows, dim=1))
    torch.testing.assert_close(layer(u, x, y), gelu(torch.cat(features, dim=-1)))


@pytest.mark.parametrize("kind", ["dot product", "with distances"])
def test_attention_to_values_equals_its_formula(kind):
    distances = kind == "with distances"
    layer = (
        SelfPositionAttention(3, 4, 2, 20.0, TORUS) if distances else SelfAttention(3, 4, 2)
    )  # of 13 points, 20 percent are the nearest three
    layer, x = shaken(layer), cloud(13)
    u = torch.randn(2, 13, 3, dtype=torch.float64)
    features = []
    for head in range(2):
        part = slice(2 * head, 2 * head + 2)
        q, k, v = (u @ p.weight[part].T for p in (layer.query, layer.key, layer.value))
        scores = torch.einsum("bid,bjd->bij", q, k) / math.sqrt(2)
        if distances:
            d = TORUS(x, x)
            far = d > torch.tensor(np.percentile(d.numpy(), 20, axis=1))[:, None]
            scores = (scores - layer.rate[head] * d).masked_fill(far, -math.inf)
        features.append(scores.softmax(-1) @ v)
    torch.testing.assert_close(layer(u, x, x), gelu(torch.cat(features, dim=-1)))


@pytest.mark.parametrize("kind", [PositionAttention, SelfPositionAttention])
def test_making_the_matrix_in_parts_changes_nothing(kind, monkeypatch):
    layer, x = shaken(kind(3, 4, 2, 30.0, PLAIN)), cloud(23)
    u = torch.randn(2, 23, 3, dtype=torch.float64)
    whole = layer(u, x, x)
    monkeypatch.setattr(tokens, "ENTRIES", 5 * 2 * 23)
    torch.testing.assert_close(layer(u, x, x), whole)
    monkeypatch.setattr(tokens, "ENTRIES", 1)
    torch.testing.assert_close(layer(u, x, x), whole)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("dim", [1, 2])
def test_equals_its_plain_composition(attention, dim):
    model = shaken(small(dim=dim, attention=attention, in_channels=2))
    x = grid(dim, 10)
    a = torch.randn(3, *[10] * dim, 2, dtype=torch.float64)
    points = x.reshape(-1, dim)
    latent = points if attention in ("self-position", "self-a") else grid(dim, 8).reshape(-1, dim)

    def linear(layer, u):
        return u @ layer.weight.T + layer.bias

    def mlp(layers, u):
        return linear(layers[2], gelu(linear(layers[0], u)))

    u = torch.cat([points.expand(3, -1, -1), a.reshape(3, -1, 2)], dim=-1)
    u = model.down(gelu(linear(model.embed, u)), points, latent)
    for block in model.processor:
        u = gelu(mlp(block.mlp, block.attention(u, latent, latent)) + linear(block.skip, u))
    u = model.up(u, latent, points)
    block = model.sharpen
    u = gelu(mlp(block.mlp, block.attention(u, points, points)) + linear(block.skip, u))
    torch.testing.assert_close(model(a, x), mlp(model.head, u).reshape(3, *[10] * dim, 1))
    kinds = {"position": PositionAttention, "self-position": SelfPositionAttention}
    across = SelfAttention if attention == "self-a" else kinds.get(attention, PositionAttention)
    assert [type(m) for m in (model.down, model.up, model.sharpen.attention)] == [across] * 3
    assert type(model.processor[0].attention) is kinds.get(attention, SelfAttention)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_without_a_latent_mesh_all_attentions_are_those_of_blocks(attention):
    model = shaken(small(attention=attention, dim=2, latent="input", sharpening=False))
    x = cloud(20)[:, None]  # scattered points, a grid of 20 x 1
    a = torch.randn(3, 20, 1, 1, dtype=torch.float64)
    points = x[:, 0]
    u = gelu(model.embed(torch.cat([points.expand(3, -1, -1), a[:, :, 0]], dim=-1)))
    for block in model.processor:
        u = gelu(block.mlp(block.attention(u, points, points)) + block.skip(u))
    torch.testing.assert_close(model(a, x)[:, :, 0], model.head(u))
    kinds = {"position": PositionAttention, "self-position": SelfPositionAttention}
    inner = kinds.get(attention, SelfAttention)
    ends = SelfAttention if attention == "self-a" else kinds.get(attention, PositionAttention)
    assert [type(b.attention) for b in model.processor] == [ends, inner, inner, ends]


def test_latent_mesh_is_the_product_of_half_open_grids():
    assert torch.equal(mesh([4], points(3)), points(4))
    assert torch.equal(mesh([4, 4], points(3)), points(4, 4))
    assert mesh([1, 2], points(3)).tolist() == [[[0.0, 0.0], [0.0, 0.5]]]


def test_a_scale_stands_for_longer_coordinates():
    """Of shock tubes, within [-5, 5] there; here within [0, 1]."""
    short, long = (shaken(PiT2025(width=8, periodic=False, **how)) for how in ({"scale": 0.01}, {}))
    x, y = points(11)[:, 0], points(7)[:, 0]
    weights = [
        model.down.scores(s * x[:, None], s * y[:, None]).softmax(-1)
        for model, s in ((short, 1.0), (long, 10.0))
    ]
    torch.testing.assert_close(*weights)
