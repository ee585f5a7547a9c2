"""The truncated transforms against torch.fft."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from operators.nn import spectral
from operators.nn.spectral import SpectralConv1d, SpectralConv2d, SpectralConv3d
from tests.operators.drawn import same
from tests.oracles import plain

pytestmark = pytest.mark.usefixtures("shapes")


KINDS = {1: SpectralConv1d, 2: SpectralConv2d, 3: SpectralConv3d}


@pytest.mark.parametrize(
    ("grid", "modes"),
    [
        ((14,), 7), ((33,), 7), ((64,), 7),  # exactly enough points, odd, even
        ((10, 10), 5), ((11, 13), 5), ((24, 17), 5), ((12, 20), 5), ((14, 9), [7, 3]),
        ((8, 8, 8), 4), ((9, 11, 10), 4), ((12, 8, 17), 4),
    ],
)  # fmt: skip
def test_equals_the_product_in_fourier_space(grid, modes):
    torch.manual_seed(0)
    layer = KINDS[len(grid)](3, 4, modes=modes, std=1.0).double()
    u = torch.randn(2, *grid, 3, dtype=torch.float64, requires_grad=True)
    expected = plain.spectral(u.movedim(-1, 1), layer.weight, modes).movedim(1, -1)
    same(layer(u), expected, [u, layer.weight])


@pytest.mark.parametrize(
    ("n", "modes"), [(16, 9), (16, 8), (15, 8), (16, 3), (2, 2), (1, 1)]
)  # all that the grid has, one less, some
def test_the_modes_of_a_line_are_those_of_the_transform_and_its_inverse(n, modes):
    u = torch.randn(2, n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u_hat = torch.fft.rfft(u, dim=1, norm="ortho")[:, :modes]
    found = spectral.line_modes(u, modes)
    torch.testing.assert_close(torch.complex(*found.unbind(1)), u_hat.transpose(0, 1))
    kept = torch.fft.irfft(u_hat, n=n, dim=1, norm="ortho")
    torch.testing.assert_close(spectral.line_of(found.transpose(0, 1), n), kept)
    if modes == n // 2 + 1:
        torch.testing.assert_close(kept, u)


@pytest.mark.parametrize("dim", KINDS)
def test_transforms_that_are_cut_into_parts_are_the_same(dim, monkeypatch):
    torch.manual_seed(0)
    layer = KINDS[dim](2, 3, 4, std=0.3).double()
    u = torch.randn(2, *[12] * dim, 2).double()
    whole = layer(u)
    monkeypatch.setattr(spectral, "parts_of", lambda n, u: 2 if n % 2 == 0 else 1)
    torch.testing.assert_close(layer(u), whole, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(spectral, "on_processor", lambda u: False)
    torch.testing.assert_close(layer(u), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_square_convolutions_have_no_complex_numbers(dim):
    """Compilers fall back where they meet one."""

    found = set()

    class Kinds(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                found.add(result.dtype)
            return result

    layer, u = KINDS[dim](2, 3, 4), torch.randn(2, *[9] * dim, 2, requires_grad=True)
    with Kinds():
        layer(u).sum().backward()
    assert torch.complex64 not in found
