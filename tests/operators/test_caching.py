"""Matrices that are kept for the whole process: an evaluation never spoils a later training."""

import pytest
import torch

from operators.nn import resample
from operators.nn.resample import resampled
from operators.nn.spectral import SpectralConv1d, SpectralConv2d


def spectral(u):
    """Transforms along one axis and along two, on sizes of no other test."""
    return SpectralConv1d(2, 2, 3)(u[:, :, 0]).sum() + SpectralConv2d(2, 2, 3)(u).sum()


@pytest.mark.parametrize(
    "act",
    [
        spectral,
        lambda u: resample._stretched_by_products(u, (59, 61)),
        *(
            lambda u, kind=kind: resampled(u.movedim(-1, 1), kind, (59, 61))
            for kind in ("bicubic", "periodic", "fourier")
        ),
    ],
)
def test_training_works_after_a_first_evaluation_in_inference_mode(act):
    u = torch.randn(2, 47, 53, 2)
    with torch.inference_mode():
        act(u)
    act(u.requires_grad_()).sum().backward()
    assert u.grad.isfinite().all()
