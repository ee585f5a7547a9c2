"""Attention against formulas written out token by token, in float64."""

import math

import pytest
import torch

from operators.nn.attention import (
    FOURIER,
    GALERKIN,
    LINEAR,
    SOFTMAX,
    HeadNorm,
    PublishedDropout,
)
from operators.nn.encoder import Attention

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


def test_galerkin_is_a_sum_over_points_with_weight_one_over_n(qkv):
    q, k, v = qkv
    expected = dense(q, k, v, lambda a, b: (a * b).sum(-1) / SHAPE[2])
    torch.testing.assert_close(GALERKIN.apply(q, k, v, lambda m: m), expected)


def test_fourier_has_the_extra_root_of_the_published_code(qkv):
    q, k, v = qkv
    expected = dense(q, k, v, lambda a, b: (a * b).sum(-1) / (SHAPE[2] * math.sqrt(SHAPE[3])))
    torch.testing.assert_close(FOURIER.apply(q, k, v, lambda m: m), expected)


def test_fourier_without_dropout_is_associative(qkv):
    torch.testing.assert_close(FOURIER.apply(*qkv), FOURIER.apply(*qkv, lambda m: m))


def test_softmax_equals_scaled_dot_product_attention(qkv):
    q, k, v = qkv
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(SOFTMAX.apply(q, k, v, lambda m: m), expected)


def test_linear_has_two_softmaxes_and_one_over_n(qkv):
    q, k, v = qkv
    q_soft = torch.exp(q) / torch.exp(q).sum(-1, keepdim=True)
    k_soft = torch.exp(k) / torch.exp(k).sum(-2, keepdim=True)
    expected = dense(q_soft, k_soft, v, lambda a, b: (a * b).sum(-1) / SHAPE[2])
    torch.testing.assert_close(LINEAR.apply(q, k, v, lambda m: m), expected)


def test_drop_acts_on_the_attention_matrix(qkv):
    sizes = {}
    for name, kind in (("galerkin", GALERKIN), ("fourier", FOURIER), ("softmax", SOFTMAX)):
        kind.apply(*qkv, lambda m, name=name: sizes.setdefault(name, m.shape[-2:]) and m)
    assert sizes == {"galerkin": (5, 5), "fourier": (6, 6), "softmax": (6, 6)}


def test_galerkin_and_linear_normalise_key_and_value_the_others_query_and_key():
    assert [k.normalizes_query for k in (GALERKIN, LINEAR, FOURIER, SOFTMAX)] == [
        False, False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("heads", [1, 3])
def test_head_norm_equals_separate_layer_norms_with_their_own_weights(heads):
    torch.manual_seed(1)
    norm = HeadNorm(heads, 8, eps=1e-5).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 7, heads, 8, dtype=torch.float64)
    for h in range(heads):
        one = torch.nn.LayerNorm(8, 1e-5).double()
        one.weight.data, one.bias.data = norm.weight.data[h], norm.bias.data[h]
        torch.testing.assert_close(norm(x)[:, :, h], one(x[:, :, h]))
    assert heads == 1 or not torch.equal(norm(x)[:, :, 0], norm(x)[:, :, 1])


def test_published_dropout_is_on_in_evaluation():
    torch.manual_seed(2)
    x = torch.ones(1000)
    y = PublishedDropout().eval()(x)
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert 0.4 < (y == 0).float().mean() < 0.6


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("normalization", [True, False])
@pytest.mark.parametrize("kind", [GALERKIN, FOURIER, SOFTMAX, LINEAR])
def test_attention_equals_its_formula_token_by_token(kind, normalization, heads):
    """With two coordinates: Q, K, V, norms, concatenation and sums for each head in turn."""
    torch.manual_seed(3)
    n, width, p, f = 6, 8, 2, 8 // heads
    module = Attention(
        width, heads, p, kind, normalization, torch.nn.Dropout(0.0), 1e-5, 1.0, 0.1
    ).double()
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
        if kind is LINEAR:
            q, k = torch.softmax(q, -1), torch.softmax(k, -2)
        products = torch.einsum("bif,bjf->bij", q, k)
        if kind is FOURIER:
            products = products / (n * math.sqrt(p + f))
        elif kind is SOFTMAX:
            products = torch.softmax(products / math.sqrt(p + f), -1)
        else:
            products = products / n
        features.append(torch.einsum("bij,bjf->bif", products, v))
    expected = torch.cat(features, -1) @ module.out.weight.T + module.out.bias
    torch.testing.assert_close(module(u, x), expected, rtol=1e-10, atol=1e-10)
