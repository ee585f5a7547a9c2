"""Layers that begin with a norm: written-out gradients against those of PyTorch's operations."""

import pytest
import torch
from torch import nn

from operators.models.ono import ONO
from operators.nn import encoder
from operators.nn.attention import efficient
from operators.nn.encoder import (
    efficient_attention_added,
    linear_added,
    normed_mlp,
    normed_projections,
)
from tests.operators.drawn import points, shaken
from tests.operators.test_fused import gradients, values


@pytest.fixture
def norm() -> nn.LayerNorm:
    torch.manual_seed(0)
    return shaken(nn.LayerNorm(6).double())


def close(ours, plain):
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def compared(function, plain, *inputs, monkeypatch):
    """Compare with the formula, and with the branch for other devices."""
    expected = gradients(plain, *inputs)
    close(gradients(function, *inputs), expected)
    monkeypatch.setattr(encoder, "on_processor", lambda u: False)
    close(gradients(function, *inputs), expected)


@pytest.mark.parametrize("added", [True, False])
def test_normed_mlp(added, norm, monkeypatch):
    mlp = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6)).double()
    compared(
        lambda u, *_: normed_mlp(u, norm, mlp, added), lambda u, *_: added * u + mlp(norm(u)),
        values(2, 7, 6), *norm.parameters(), *mlp.parameters(), monkeypatch=monkeypatch,
    )  # fmt: skip


def test_normed_projections(norm, monkeypatch):
    def plain(u, weight, bias, *_):
        return tuple(norm(u) @ w.T + b for w, b in zip(weight, bias, strict=True))

    compared(
        lambda u, weight, bias, *_: normed_projections(u, norm, weight, bias), plain,
        values(2, 7, 6), values(3, 6, 6), values(3, 6), *norm.parameters(),
        monkeypatch=monkeypatch,
    )  # fmt: skip


def test_linear_added(monkeypatch):
    linear = nn.Linear(4, 6).double()
    compared(
        lambda u, v, *_: linear_added(u, v, linear), lambda u, v, *_: u + linear(v),
        values(2, 7, 6), values(2, 7, 4), *linear.parameters(), monkeypatch=monkeypatch,
    )  # fmt: skip


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_efficient_attention_without_values(heads, norm):
    out = nn.Linear(6, 6).double()

    def plain(u, query, key, value, *_):
        maps = (norm(u) @ w.T for w in (query, key, value))
        q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in maps)
        return u + out(efficient(q, k, v).transpose(1, 2).flatten(2))

    inputs = [values(2, 7, 6), *(values(6, 6) for _ in range(3))]
    inputs += [*norm.parameters(), *out.parameters()]
    ours = gradients(
        lambda u, q, k, v, *_: efficient_attention_added(u, norm, q, k, v, out, heads), *inputs
    )
    close(ours, gradients(plain, *inputs))


@pytest.mark.parametrize(
    "model",
    [
        ONO(dim=1, width=8, depth=2, heads=2, eigenfunctions=3, attention="linear"),
        ONO(dim=1, width=8, depth=2, heads=2, eigenfunctions=3, attention="linear", queries=True),
    ],
    ids=["ono", "ono with queries"],
)
def test_a_mask_that_hides_nothing_changes_nothing(model):
    """Without a mask the attention is written out; with one, it is that of PyTorch."""
    torch.manual_seed(0)
    model, x = shaken(model.double()), points(9)
    a = values(2, 9, 1)
    mask = torch.ones(2, 9, dtype=torch.bool)
    parameters = list(model.parameters())
    ours = gradients(lambda a, *_: model(a, x), a, *parameters)
    plain = gradients(lambda a, *_: model(a, x, mask=mask), a, *parameters)
    for found, expected in zip(ours, plain, strict=True):  # Cholesky factors amplify rounding
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
