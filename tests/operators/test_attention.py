"""Attention against formulas written out token by token, in float64."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from operators.nn import encoder
from operators.nn import encoder as affine
from operators.nn.attention import (
    EFFICIENT,
    FOURIER,
    GALERKIN,
    LINEAR,
    SOFTMAX,
    HeadNorm,
    PublishedDropout,
    efficient,
    fourier,
    galerkin,
    linear,
    softmax,
)
from operators.nn.encoder import Attention

pytestmark = pytest.mark.usefixtures("shapes")

SHAPE = (2, 3, 6, 5)  # (batch, heads, n, d)


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return tuple(torch.randn(SHAPE, dtype=torch.float64) for _ in range(3))


def dense(q, k, v, kernel):
    """out_i = Σ_j kernel(q_i, k_j) v_j by loops over tokens."""
    out = torch.zeros_like(v)
    n = q.shape[-2]
    for i in range(n):
        for j in range(n):
            out[..., i, :] += kernel(q[..., i, :], k[..., j, :])[..., None] * v[..., j, :]
    return out


@pytest.mark.parametrize(
    ("attention", "soft", "scale"),
    [
        (galerkin, False, 1 / SHAPE[2]),
        (fourier, False, 1 / (SHAPE[2] * math.sqrt(SHAPE[3]))),  # with the root of the code
        (linear, True, 1 / SHAPE[2]),
        (efficient, True, 1 / math.sqrt(SHAPE[3])),
    ],
)
def test_attention_without_a_matrix_of_all_points_equals_its_sum(qkv, attention, soft, scale):
    """Of q · k, or of softmax over features of q and over points of k."""
    q, k, v = qkv
    if soft:
        q, k = torch.exp(q), torch.exp(k)
        q, k = q / q.sum(-1, keepdim=True), k / k.sum(-2, keepdim=True)
    expected = dense(q, k, v, lambda a, b: (a * b).sum(-1) * scale)
    torch.testing.assert_close(attention(*qkv, lambda m: m), expected)
    torch.testing.assert_close(attention(*qkv), expected)


@pytest.mark.parametrize("d", [5, 8])  # with the features padded, and as they are
def test_softmax_equals_its_formula_with_and_without_the_matrix(d):
    q, k, v = torch.randn(3, 2, 3, 6, d, dtype=torch.float64)
    expected = dense(q, k, v, lambda a, b: torch.exp((a * b).sum(-1) / math.sqrt(d)))
    total = dense(q, k, torch.ones_like(v), lambda a, b: torch.exp((a * b).sum(-1) / math.sqrt(d)))
    torch.testing.assert_close(softmax(q, k, v), expected / total)
    torch.testing.assert_close(softmax(q, k, v, lambda m: m), expected / total)


def test_softmax_without_dropout_stores_no_matrix():
    n = 512
    q, k, v = (torch.randn(1, 1, n, 9, requires_grad=True) for _ in range(3))
    sizes = []

    def stored(t):
        sizes.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(stored, lambda t: t):
        softmax(q, k, v)
        assert max(sizes) < n * n
        softmax(q, k, v, lambda m: m)
        assert max(sizes) == n * n


def test_drop_acts_on_the_attention_matrix(qkv):
    sizes = {}
    for apply in (galerkin, linear, efficient, fourier, softmax):
        apply(*qkv, lambda m, name=apply.__name__: sizes.setdefault(name, m.shape[-2:]) and m)
    assert sizes == {
        "galerkin": (5, 5), "linear": (5, 5), "efficient": (5, 5), "fourier": (6, 6),
        "softmax": (6, 6),
    }  # fmt: skip


@pytest.mark.parametrize("kind", [GALERKIN, FOURIER, SOFTMAX, LINEAR, EFFICIENT])
def test_a_kind_is_copied_and_pickled(kind, qkv):
    for other in (copy.deepcopy(kind), pickle.loads(pickle.dumps(kind))):
        assert torch.equal(other.make(5)(*qkv), kind.make(5)(*qkv))


def test_published_dropout_is_on_in_evaluation():
    torch.manual_seed(2)
    x = torch.ones(1000)
    y = PublishedDropout().eval()(x)
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert 0.4 < (y == 0).float().mean() < 0.6


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("normalization", [True, False])
@pytest.mark.parametrize("kind", [GALERKIN, FOURIER, SOFTMAX, LINEAR, EFFICIENT])
def test_attention_equals_its_formula_token_by_token(kind, normalization, heads):
    """With two coordinates: Q, K, V, norms, concatenation and sums for each head in turn."""
    torch.manual_seed(3)
    n, width, p, f = 6, 8, 2, 8 // heads
    norm = HeadNorm if normalization else None
    module = Attention(width, heads, p, kind, norm, nn.Dropout(0.0), 1e-5, 1.0, 0.1).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    u, x = torch.randn(2, n, width, dtype=torch.float64), torch.rand(n, p, dtype=torch.float64)

    def scaled(y, norm, head):
        y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        return y * norm.weight[head] + norm.bias[head]

    features = []
    for head in range(heads):
        rows = slice(head * f, (head + 1) * f)
        q, k, v = (
            u @ weight[rows].T + bias[rows]
            for weight, bias in zip(module.project.weight, module.project.bias, strict=True)
        )
        if normalization:
            k = scaled(k, module.norm_key, head)
            if kind in (FOURIER, SOFTMAX):
                q = scaled(q, module.norm_other, head)
            else:
                v = scaled(v, module.norm_other, head)
        q, k, v = (torch.cat([x.expand(2, n, p), y], -1) for y in (q, k, v))
        features.append(kind.make(p + f)(q[:, None], k[:, None], v[:, None])[:, 0])
    expected = torch.cat(features, -1) @ module.out.weight.T + module.out.bias
    torch.testing.assert_close(module(u, x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("normalization", [HeadNorm, None])
@pytest.mark.parametrize(("heads", "positions", "parts"), [(1, 1, 1), (2, 2, 4), (3, 0, 2)])
def test_the_gradient_written_out_is_that_of_the_formulas(
    monkeypatch, added, normalization, heads, positions, parts
):
    """The layer that a GPU runs beside PyTorch's own operations, in float64."""
    monkeypatch.setattr(affine, "parts_of", lambda n, u: parts)
    torch.manual_seed(0)
    layer = Attention(
        12, heads, positions, GALERKIN, normalization, nn.Dropout(0.0), 1e-5, 0.5, 0.3
    ).double()
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.3 * torch.randn_like(p)
    x = torch.rand(16, positions, dtype=torch.float64)
    u = torch.randn(3, 16, 12, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, 16, 12, dtype=torch.float64)
    given = [u, *layer.parameters()]
    found, calls = [], []
    monkeypatch.setattr(encoder, "galerkin_attention", lambda *a: calls.append(a) or u)
    layer._as_one_map(u, x, added)
    *arguments, drop, _ = calls[0]
    assert drop is None
    by_products = affine.by_products(*arguments)
    for values in (affine.written_out(*arguments, added), added * u + by_products):
        gradients = torch.autograd.grad((values * direction).sum(), given)
        found.append((values.detach(), *gradients))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12 * float(plain.abs().max()))
