"""Low-rank spatial attention against its formulas written out token by token, in float64."""

import copy
import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from operators.base import check_input
from operators.models.lrsa import LRSA
from tests.operators.drawn import shaken
from tests.oracles.plain_lrsa import PlainLRSA

VARIANTS = [
    {"dim": dim, "convolution": convolution, "normalize": normalize}
    for dim in (1, 2)
    for convolution, normalize in ((True, True), (False, False))
]


def points(n, dim=1, dtype=torch.float64, kind="periodic"):
    j = torch.arange(n, dtype=dtype)
    axis = {"periodic": j / n, "cell": (j + 0.5) / n, "nodal": j / (n - 1)}[kind]
    return torch.stack(torch.meshgrid(*[axis] * dim, indexing="ij"), dim=-1)


def small(**settings):
    torch.manual_seed(0)
    return LRSA(
        **{"dim": 1, "width": 12, "depth": 2, "heads": 3, "latents": 5, "feedforward": 10}
        | settings
    )


def rms(u, norm):
    return u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


def maps(u, module):
    """The MLP, from its matrices."""
    first, _, second = module
    return gelu(u @ first.weight.T + first.bias) @ second.weight.T + second.bias


def attended(q, z, module, normalize):
    """Attention with loops over heads and queries; q is projected already."""
    k, v = z @ module.key.weight.T, z @ module.value.weight.T
    out = torch.zeros_like(q)
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        qh, kh = q[..., part], k[..., part]
        if normalize:
            qh, kh = rms(qh, module.norm_query), rms(kh, module.norm_key)
        for i in range(q.shape[1]):
            scores = [(qh[:, i] * kh[:, j]).sum(-1) / math.sqrt(4) for j in range(z.shape[1])]
            weight = torch.stack(scores, -1).exp()
            weight = weight / weight.sum(-1, keepdim=True)
            out[:, i, part] = sum(weight[:, j, None] * v[:, j, part] for j in range(z.shape[1]))
    return out @ module.out.weight.T + module.out.bias


@pytest.mark.parametrize("variant", VARIANTS)
def test_block_equals_its_formula_token_by_token(variant):
    model = shaken(small(**variant))
    block, normalize = model.blocks[0], variant["normalize"]
    u = torch.randn(2, *(5, 4)[: variant["dim"]], 12, dtype=torch.float64)
    flat = u.flatten(1, -2)
    n = rms(flat, block.norm_down)
    z = attended(block.queries.expand(2, 5, 12), n, block.down, normalize)
    z = z + maps(rms(z, block.norm1), block.mlp1)
    t = rms(z, block.norm_within)
    z = z + attended(t @ block.within.query.weight.T, t, block.within, normalize)
    z = z + maps(rms(z, block.norm2), block.mlp2)
    t = rms(z, block.norm_up)
    v = flat + attended(n @ block.up.query.weight.T, t, block.up, normalize)
    w = rms(v, block.norm3)
    if variant["convolution"]:
        convolution, norm, first, _, second = block.pointwise
        channels_first = w.unflatten(1, u.shape[1:-1]).movedim(-1, 1)
        w = convolution.convolution(channels_first).flatten(2).mT
        w = gelu(layer_norm(w, (12,), norm.weight, norm.bias) @ first.weight.T)
        w = w @ second.weight.T + second.bias
    else:
        w = maps(w, block.pointwise)
    torch.testing.assert_close(block(u).flatten(1, -2), v + w)


def test_the_whole_is_an_mlp_blocks_and_an_mlp():
    model = shaken(small())
    x = points(6)
    a = torch.randn(2, 6, 1, dtype=torch.float64)
    u = maps(torch.cat([a.new_zeros(2, 6, 1) + x, a], -1), model.embed)
    for block in model.blocks:
        u = block(u)
    torch.testing.assert_close(model(a, x), maps(u, model.decoder))


def test_number_of_parameters():
    def linear(c_in, c_out, bias=True):
        return c_in * c_out + bias * c_out

    def mlp(c_in, hidden, c_out):
        return linear(c_in, hidden) + linear(hidden, c_out)

    d, heads = 128, 8
    attention = 3 * linear(d, d, False) + linear(d, d) + 2 * d // heads
    block = 64 * d + 3 * attention - d * d + 2 * mlp(d, d, d) + 6 * d  # one attention has no W_q
    convolution = 9 * d * d + d + 2 * d + linear(d, d, False) + linear(d, d)
    ends = mlp(3, 2 * d, d) + mlp(d, d, 1)
    with torch.device("meta"):
        assert LRSA().parameter_count == 8 * (block + convolution) + ends == 3_542_145
        assert LRSA(convolution=False).parameter_count == 8 * (block + mlp(d, d, d)) + ends


def test_queries_start_orthogonal_and_linear_maps_with_unit_gain():
    torch.manual_seed(0)
    block = LRSA(depth=1).blocks[0]
    gram = block.queries @ block.queries.mT  # 64 tokens, 128 features
    torch.testing.assert_close(gram, torch.eye(64), rtol=0, atol=1e-5)
    # 16,384 draws: the deviation of their deviation is 0.6 %
    assert float(block.up.out.weight.detach().std()) == pytest.approx(128**-0.5, rel=0.03)
    assert torch.count_nonzero(block.up.out.bias.detach()) == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_reaches_every_parameter(variant):
    model = shaken(small(**variant))
    x = points(5, variant["dim"])
    model(torch.randn(2, *x.shape[:-1], 1, dtype=torch.float64), x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_equals_its_samples_and_a_copy_the_original(variant):
    model = shaken(small(**variant))
    x = points(5, variant["dim"])
    a = torch.randn(3, *x.shape[:-1], 1, dtype=torch.float64)
    u = model(a, x)
    singles = torch.cat([model(one[None], x) for one in a])
    torch.testing.assert_close(u, singles, rtol=1e-10, atol=1e-10)
    assert torch.equal(copy.deepcopy(model)(a, x), u)


def test_single_precision_agrees_with_double():
    model = shaken(small())
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    u = model(a, x)
    torch.testing.assert_close(
        model.float()(a.float(), x.float()).double(), u, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("convolution", [False, True])
def test_commutes_with_permutations_where_there_is_no_convolution(convolution):
    model = shaken(small(convolution=convolution, coordinates="none"))
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    order = torch.randperm(16)
    same = torch.allclose(model(a[:, order], x), model(a, x)[:, order], rtol=1e-9, atol=1e-9)
    assert same == (not convolution)


def test_with_coordinates_it_maps_a_set_of_points():
    model = shaken(small(convolution=False))
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    order = torch.randperm(16)
    torch.testing.assert_close(model(a[:, order], x[order]), model(a, x)[:, order])


@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_commutes_with_shifts_where_convolutions_are_circular(padding):
    model = shaken(small(dim=2, padding=padding, coordinates="none"))
    a, x = torch.randn(2, 6, 6, 1, dtype=torch.float64), points(6, 2)
    shifted = model(a.roll((2, 3), dims=(1, 2)), x)
    same = torch.allclose(shifted, model(a, x).roll((2, 3), dims=(1, 2)), rtol=1e-9, atol=1e-9)
    assert same == (padding == "circular")


@pytest.mark.parametrize("coordinates", ["raw", "periodic", "none"])
def test_without_convolution_converges_under_refinement(coordinates):
    """Means over points are quadratures: faster than any order for smooth functions, first order
    where the coordinate has a jump at the ends."""
    model = shaken(small(convolution=False, coordinates=coordinates))

    def values(n):
        x = points(n)
        return model(torch.sin(2 * torch.pi * x)[None] + 0.3, x)[0]

    coarse, fine = ((values(2 * n)[::2] - values(n)).abs().max() for n in (64, 128))
    if coordinates == "raw":
        assert fine < 0.6 * coarse
        assert fine < 0.01 * values(128).abs().max()
    else:
        assert fine < 1e-6


@pytest.mark.parametrize("kind", ["periodic", "cell", "nodal"])
@pytest.mark.parametrize("n", [5, 8])
def test_takes_every_grid(kind, n):
    x = points(n, 2, torch.float32, kind)
    assert small(dim=2, out_channels=2)(torch.randn(2, n, n, 1), x).shape == (2, n, n, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"heads": 5}, "heads must divide width, got heads=5, width=12"),
        ({"heads": 0}, "heads must divide width, got heads=0, width=12"),
        ({"latents": 1}, "latents must be at least 2, got 1"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 16), r"expected input of shape \(batch, n1, 1\), got \(2, 16\)"),
        ((2, 16, 2), r"expected input of shape \(batch, n1, 1\), got \(2, 16, 2\)"),
        ((2, 15, 1), r"expected coordinates of shape \(15, 1\), got \(16, 1\)"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_refuses_input_of_another_shape(shape, message):
    with pytest.raises(ValueError, match=message):
        check_input(small(), torch.zeros(shape), points(16, dtype=torch.float32))


def test_refuses_points_of_the_output_other_than_those_of_the_input():
    x = points(16, dtype=torch.float32)
    with pytest.raises(ValueError, match="y must be None"):
        small()(torch.zeros(1, 16, 1), x, x[:8])


def test_is_the_released_operator_written_out():
    torch.manual_seed(0)
    sizes = {"width": 12, "depth": 2, "heads": 3, "latents": 5, "feedforward": 10}
    model, plain = LRSA(**sizes).double(), PlainLRSA(**sizes).double()
    plain.copy_from(model)
    axis = torch.arange(6).double() / 6
    x = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
    a = torch.randn(2, 6, 6, 1, dtype=torch.float64)
    torch.testing.assert_close(model(a, x), plain(a, x))
