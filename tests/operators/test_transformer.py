"""The Transformer against its plain transcription and its symmetries."""

import math

import pytest
import torch

from operators.models.transformer import Transformer
from tests.operators.drawn import points, shaken
from tests.oracles.plain_operators import PlainTransformer

ATTENTIONS = ["softmax", "efficient", "galerkin"]
SMALL = {"width": 12, "depth": 2, "heads": 2, "feedforward": 16, "modes": 4, "decoder_width": 6}


def small(**settings):
    return Transformer(**SMALL | settings)


def field(dim, n=10, batch=2):
    torch.manual_seed(2)
    return torch.randn(batch, *[n] * dim, 1, dtype=torch.float64)


def plain(model, a, x, *, attention, pre, activation):
    """The same map without one shared line, for the linear decoder."""
    f, heads = torch.nn.functional, SMALL["heads"]
    act = torch.relu if activation == "relu" else lambda t: t * (1 + torch.erf(t / 2**0.5)) / 2
    u = torch.cat([a, x.expand(len(a), *x.shape)], -1).flatten(1, -2)
    u = u @ model.embed.weight.T + model.embed.bias

    def norm(t, weights):
        mean, variance = t.mean(-1, keepdim=True), t.var(-1, keepdim=True, correction=0)
        return (t - mean) / (variance + 1e-5).sqrt() * weights.weight + weights.bias

    def attend(t, layer):
        project, rows = layer.attention.project, []
        for h in range(heads):
            chosen = slice(h * 6, (h + 1) * 6)
            q, k, v = (
                t @ w[chosen].T + b[chosen]
                for w, b in zip(project.weight, project.bias, strict=True)
            )
            if attention == "softmax":
                rows.append(f.softmax(q @ k.mT / math.sqrt(6), -1) @ v)
            elif attention == "efficient":
                rows.append(f.softmax(q, -1) / math.sqrt(6) @ (f.softmax(k, -2).mT @ v))
            else:
                rows.append(q @ (k.mT @ v) / t.shape[1])
        return layer.attention.out(torch.cat(rows, -1))

    def mlp(t, layer):
        return layer.mlp[2](act(layer.mlp[0](t)))

    for layer in model.layers:
        if pre:
            u = u + attend(norm(u, layer.norm1), layer)
            u = u + mlp(norm(u, layer.norm2), layer)
        else:
            u = norm(u + attend(u, layer), layer.norm1)
            u = norm(u + mlp(u, layer), layer.norm2)
    if pre:
        u = norm(u, model.norm)
    return model.decoder(u).view(*a.shape[:-1], -1)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("normalization", "activation"), [("pre", "gelu"), ("post", "relu")])
def test_equals_the_plain_transcription(dim, attention, normalization, activation):
    model = shaken(
        small(dim=dim, attention=attention, normalization=normalization, activation=activation)
    )
    a, x = field(dim), points(*[10] * dim)
    expected = plain(
        model, a, x, attention=attention, pre=normalization == "pre", activation=activation
    )
    torch.testing.assert_close(model(a, x), expected, rtol=1e-9, atol=1e-9)


def test_periodic_coordinates_are_the_same_at_both_ends():
    model = small(coordinates="periodic", dim=2).double()
    ends = torch.tensor([[[0.0, 0.3]], [[1.0, 0.3]]], dtype=torch.float64)
    p = model.positions(ends)
    assert p.shape == (2, 1, 4)
    torch.testing.assert_close(p[0], p[1])


def test_is_what_pytorch_makes_of_its_own_layers():
    model = shaken(small(attention="softmax"))
    plain = PlainTransformer(1, 12, 2, 2, 16).double()
    plain.copy_from(model)
    a, x = torch.randn(2, 10, 1, dtype=torch.float64), points(10)
    torch.testing.assert_close(model(a, x), plain(a, x))
