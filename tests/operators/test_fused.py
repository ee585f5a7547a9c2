"""Gradients that are written out: against those that PyTorch derives from its own operations."""

import pytest
import torch
from torch import nn

from operators.nn import encoder
from operators.nn.encoder import inner, moments, parts_of, residual_mlp, slice_sums


def gradients(function, *inputs):
    """Values and gradients for a fixed random direction."""
    outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.manual_seed(7)
    weighted = sum((y * torch.randn(y.shape, dtype=y.dtype)).sum() for y in outputs)
    needed = [v for v in inputs if v.requires_grad]
    return [*outputs, *torch.autograd.grad(weighted, needed)]


def compared(function, *inputs, monkeypatch):
    written_out = gradients(function, *inputs)
    monkeypatch.setattr(encoder, "on_processor", lambda u: False)
    for ours, plain in zip(written_out, gradients(function, *inputs), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def values(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("eps", [None, 1e-5])
@pytest.mark.parametrize(("features", "columns"), [(6, 3), (3, 1), (2, 2), (6, 0)])
def test_moments(eps, features, columns, monkeypatch):
    torch.manual_seed(0)
    z = torch.randn(7, columns, dtype=torch.float64)

    def function(u, weight, bias):
        return moments(u, weight, bias, z, features, eps)

    compared(function, values(2, 7, 6), values(12, 6), values(12), monkeypatch=monkeypatch)


@pytest.mark.parametrize("eps", [None, 1e-5])
def test_moments_have_a_gradient_for_the_fixed_functions(eps, monkeypatch):
    torch.manual_seed(0)

    def function(u, weight, bias, z):
        return moments(u, weight, bias, z, 3, eps)

    inputs = values(2, 7, 6), values(12, 6), values(12), values(7, 3)
    compared(function, *inputs, monkeypatch=monkeypatch)


def test_residual_mlp(monkeypatch):
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6)).double()
    u = values(2, 7, 6)
    torch.testing.assert_close(residual_mlp(u, mlp), u + mlp(u), rtol=1e-13, atol=1e-13)

    def function(u, *parameters):
        return residual_mlp(u, mlp)

    compared(function, u, *mlp.parameters(), monkeypatch=monkeypatch)


def test_an_input_that_is_not_contiguous(monkeypatch):
    mlp = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6)).double()
    u = values(2, 6, 7)
    compared(lambda u: residual_mlp(u.mT, mlp), u, monkeypatch=monkeypatch)


@pytest.mark.parametrize("features", [4, 0])
def test_slice_sums(features, monkeypatch):
    torch.manual_seed(0)
    inputs = values(3, 7, 4), values(3, 4, 5), values(3, 1, 5), values(3, 7, features)
    w, sums, totals = slice_sums(*inputs)
    torch.testing.assert_close(w.sum(-1), torch.ones(3, 7).double())
    torch.testing.assert_close(sums, torch.einsum("bng,bnq->bgq", w, inputs[3]))
    torch.testing.assert_close(totals[:, 0], w.sum(1))
    compared(slice_sums, *inputs, monkeypatch=monkeypatch)


def test_sums_over_many_points_are_cut_where_that_fills_the_device():
    processor, other = torch.ones(1), torch.ones(1, device="meta")
    assert [parts_of(n, processor) for n in (512, 8192)] == [1, 1]
    # equal parts of 256 points at least, 32 parts at most
    assert [parts_of(n, other) for n in (256, 512, 1849, 7225, 8192)] == [1, 2, 1, 25, 32]


def test_a_sum_in_parts_is_the_sum(monkeypatch):
    torch.manual_seed(0)
    kv, z = values(2, 12, 6), torch.randn(12, 3, dtype=torch.float64)

    def inner_of(kv):
        k, v = kv.chunk(2, dim=-1)
        return inner(k, v), inner(z.expand(2, -1, -1), kv)

    whole = gradients(inner_of, kv)
    monkeypatch.setattr(encoder, "parts_of", lambda n, u: 3)
    for ours, plain in zip(gradients(inner_of, kv), whole, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
