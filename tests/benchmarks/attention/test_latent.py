"""Spectra and latent functions of layers of attention, with known answers."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from benchmarks.attention.latent import effective_rank, latents, spectrum
from operators.models.galerkin import GalerkinTransformer
from operators.nn.attention import FOURIER, GALERKIN, SOFTMAX, keep

pytestmark = pytest.mark.usefixtures("shapes")


def orthonormal(n, r):
    """Columns with ⟨f, g⟩ = Σ f g / n = δ."""
    torch.manual_seed(0)
    return torch.linalg.qr(torch.randn(n, r, dtype=torch.float64))[0] * n**0.5


def test_galerkin_attention_has_the_spectrum_that_its_arguments_say():
    """With orthonormal functions U: Q = U, K = U diag(s), V = U give Q (KᵀV)/n = U diag(s)."""
    s, u = torch.tensor([4.0, 2.0, 1.0, 0.0], dtype=torch.float64), orthonormal(50, 4)
    found = spectrum(GALERKIN.make(4)(u[None, None], (u * s)[None, None], u[None, None], keep))
    assert found[0, 0] == pytest.approx(s, abs=1e-12)
    # shares 16, 4 and 1 of 21
    p = torch.tensor([16, 4, 1]) / 21
    expected = float((-p * p.log()).sum().exp())
    assert float(effective_rank(found)[0, 0]) == pytest.approx(expected)


@pytest.mark.parametrize("r", [1, 3, 7])
def test_the_effective_rank_counts_equal_singular_values(r):
    s = torch.cat([torch.full((r,), 5.0), torch.zeros(4)])
    assert float(effective_rank(s)) == pytest.approx(r, rel=1e-6)


@pytest.mark.parametrize("attention", [GALERKIN, SOFTMAX, FOURIER])
@pytest.mark.parametrize("normalization", ["head", "layer", "instance"])
def test_layers_are_seen_as_they_are(attention, normalization):
    torch.manual_seed(0)
    model = GalerkinTransformer(
        width=8, depth=3, heads=2, feedforward=16, modes=4, attention=attention,
        normalization=normalization,
    ).double().eval()  # fmt: skip
    a = torch.randn(2, 32, 1, dtype=torch.float64)
    x = torch.arange(32, dtype=torch.float64)[:, None] / 32
    layers = latents(model, lambda: model(a, x))
    assert len(layers) == 3
    assert torch.equal(layers[0].before, model.embed(a))
    for layer, following in pairwise(layers):
        assert torch.equal(layer.after, following.before)
    for layer, seen in zip(model.encoder, layers, strict=True):
        u = layer.norm1(seen.before + seen.added)
        assert_close(layer.norm2(u + layer.mlp(u)), seen.after)
        assert seen.heads.shape == (2, 2, 32, 5)
        # the map that leads from the heads to what is added
        merged = seen.heads.transpose(1, 2).flatten(2)
        assert_close(layer.attention.out(merged), seen.added)
        assert seen.spectra.shape == (2, 2, 5)
    assert not any(layer._forward_hooks for layer in model.modules())
