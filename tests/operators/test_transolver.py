"""Transolver against its formulas written out point by point, in float64."""

import math

import pytest
import torch

from operators.models.transolver import PhysicsAttention, Transolver
from operators.nn.pointwise import Convolution
from tests.operators.drawn import points, shaken
from tests.oracles.plain_transolver import PlainTransolver


def small(**settings):
    torch.manual_seed(0)
    return Transolver(
        **{"dim": 1, "width": 12, "depth": 2, "heads": 3, "slices": 5, "feedforward": 10,
           "lattice": 3} | settings
    )  # fmt: skip


def attention(dim, projection, padding="zeros"):
    def projected():
        if projection == "linear":
            return torch.nn.Linear(8, 8)
        return Convolution(dim, 8, padding)

    return shaken(PhysicsAttention(8, 2, 3, (projected(), projected())))


def neighbours(u, convolution, wrap):
    """Convolution with 3 weights along each axis as a sum over the points around each one."""
    weight, bias = convolution.weight, convolution.bias
    sizes, dim = u.shape[1:-1], u.ndim - 2
    out = torch.zeros_like(u) + bias
    for index in torch.cartesian_prod(*map(torch.arange, sizes)).view(-1, dim).tolist():
        for step in torch.cartesian_prod(*[torch.arange(3)] * dim).view(-1, dim).tolist():
            at = [i + s - 1 for i, s in zip(index, step, strict=True)]
            if wrap:
                at = [i % n for i, n in zip(at, sizes, strict=True)]
            if all(0 <= i < n for i, n in zip(at, sizes, strict=True)):
                matrix = weight[(slice(None), slice(None), *step)]
                out[(slice(None), *index)] += u[(slice(None), *at)] @ matrix.T
    return out


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("variant", ["linear", "zeros", "circular"])
def test_attention_equals_its_formula_point_by_point(dim, variant):
    padding = "zeros" if variant == "linear" else variant
    module = attention(dim, "linear" if variant == "linear" else "convolution", padding)
    u = torch.randn(2, *(5, 4)[:dim], 8, dtype=torch.float64)

    def projected(projection):
        if variant == "linear":
            return u @ projection.weight.T + projection.bias
        return neighbours(u, projection.convolution, variant == "circular")

    x, f = (projected(p).flatten(1, -2) for p in (module.to_slices, module.to_values))
    n, heads = x.shape[1], []
    for h in range(2):
        part = slice(4 * h, 4 * h + 4)
        tau = module.temperature[h].clamp(0.1, 5)
        logits = (x[..., part] @ module.slices.weight.T + module.slices.bias) / tau
        w = logits.exp() / logits.exp().sum(-1, keepdim=True)
        tokens = torch.stack(
            [
                sum(w[:, j, g, None] * f[:, j, part] for j in range(n))
                / (w[:, :, g].sum(1) + 1e-5)[:, None]
                for g in range(3)
            ],
            dim=1,
        )
        q, k, v = (tokens @ m.weight.T for m in (module.query, module.key, module.value))
        mixed = torch.zeros_like(tokens)
        for i in range(3):
            scores = torch.stack([(q[:, i] * k[:, j]).sum(-1) / math.sqrt(4) for j in range(3)], -1)
            share = scores.exp() / scores.exp().sum(-1, keepdim=True)
            mixed[:, i] = sum(share[:, j, None] * v[:, j] for j in range(3))
        heads.append(
            torch.stack(
                [sum(w[:, j, g, None] * mixed[:, g] for g in range(3)) for j in range(n)], 1
            )
        )
    expected = torch.cat(heads, -1) @ module.out.weight.T + module.out.bias
    torch.testing.assert_close(module(u).flatten(1, -2), expected)


def test_temperature_is_held_within_its_bounds():
    module, u = attention(1, "linear"), torch.randn(1, 6, 8, dtype=torch.float64)
    results = []
    for tau in (-1.0, 0.1, 5.0, 50.0):
        module.temperature.data.fill_(tau)
        results.append(module.weights(u))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[2], results[3])
    assert not torch.allclose(results[1], results[2])


def test_lattice_positions_are_distances_to_its_points():
    p = small(dim=2).positions(torch.tensor([[[0.5, 0.25]], [[1.0, 1.0]]]))
    assert p.shape == (2, 1, 9)
    axis = (0.0, 0.5, 1.0)
    expected = [math.hypot(0.5 - s, 0.25 - t) for s in axis for t in axis]
    torch.testing.assert_close(p[0, 0], torch.tensor(expected))
    assert float(p[1, 0, -1]) == 0
    assert Transolver(dim=1, depth=1).positions(points(4)).shape == (4, 8)


def test_slices_of_half_precision_are_summed_in_single():
    model = small().bfloat16()
    assert (
        model.blocks[0].attention.weights(torch.randn(1, 8, 12).bfloat16()).dtype == torch.float32
    )
    a, x = torch.randn(2, 16, 1), points(16, dtype=torch.float32)
    assert model(a.bfloat16(), x.bfloat16()).dtype == torch.bfloat16


def test_is_the_released_operator_written_out():
    model = shaken(small(dim=2))
    plain = PlainTransolver(12, 2, 3, 5, 10, lattice=3).double()
    plain.copy_from(model)
    a, x = torch.randn(2, 6, 5, 1, dtype=torch.float64), points(6, 5)
    torch.testing.assert_close(model(a, x), plain(a, x))
