"""The truncated transforms against torch.fft."""

from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from operators.nn import spectral
from operators.nn.spectral import SpectralConv1d, SpectralConv2d, SpectralConv3d

pytestmark = pytest.mark.usefixtures("shapes")


@pytest.mark.parametrize("n", [14, 33, 64])  # exactly enough points, odd, even
def test_equals_the_product_in_fourier_space(n):
    torch.manual_seed(0)
    layer = SpectralConv1d(3, 5, modes=7, std=1.0).double()
    u = torch.randn(2, n, 3, dtype=torch.float64)
    u_hat = torch.fft.rfft(u, dim=1, norm="ortho")
    v_hat = torch.zeros(2, n // 2 + 1, 5, dtype=torch.complex128)
    weight = torch.view_as_complex(layer.weight.detach())
    v_hat[:, :7] = torch.einsum("bmi,mio->bmo", u_hat[:, :7], weight)
    expected = torch.fft.irfft(v_hat, n=n, dim=1, norm="ortho")
    torch.testing.assert_close(layer(u), expected)


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


@pytest.mark.parametrize(
    ("grid", "modes"),
    [((10, 10), 5), ((11, 13), 5), ((24, 17), 5), ((12, 20), 5), ((14, 9), [7, 3])],
)
def test_on_the_square_it_equals_the_product_in_fourier_space(grid, modes):
    torch.manual_seed(0)
    layer = SpectralConv2d(3, 4, modes=modes, std=1.0).double()
    m, last = layer.kept
    u = torch.randn(2, *grid, 3, dtype=torch.float64, requires_grad=True)
    u_hat = torch.fft.rfft2(u, dim=(1, 2), norm="ortho")
    v_hat = torch.zeros(2, grid[0], grid[1] // 2 + 1, 4, dtype=torch.complex128)
    weight = torch.view_as_complex(layer.weight)
    for k1 in range(-m, m):
        w = weight[0, k1] if k1 >= 0 else weight[1, -1 - k1]
        v_hat[:, k1, :last] = torch.einsum("bki,kio->bko", u_hat[:, k1, :last], w)
    expected = torch.fft.irfft2(v_hat, s=grid, dim=(1, 2), norm="ortho")
    torch.testing.assert_close(layer(u), expected, rtol=1e-12, atol=1e-12)
    seed = torch.randn_like(expected)
    ours = torch.autograd.grad(layer(u), (u, layer.weight), seed)
    theirs = torch.autograd.grad(expected, (u, layer.weight), seed)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grid", [(8, 8, 8), (9, 11, 10), (12, 8, 17)])
def test_in_space_it_equals_the_product_in_fourier_space(grid):
    torch.manual_seed(0)
    m = 4
    layer = SpectralConv3d(3, 2, modes=m, std=1.0).double()
    u = torch.randn(2, *grid, 3, dtype=torch.float64, requires_grad=True)
    u_hat = torch.fft.rfftn(u, dim=(1, 2, 3), norm="ortho")
    v_hat = torch.zeros(2, *grid[:2], grid[2] // 2 + 1, 2, dtype=torch.complex128)
    weight = torch.view_as_complex(layer.weight)
    for k1, k2 in product(range(-m, m), repeat=2):
        block = weight[int(k1 < 0), int(k2 < 0)]
        w = block[k1 if k1 >= 0 else -1 - k1, k2 if k2 >= 0 else -1 - k2]
        v_hat[:, k1, k2, :m] = torch.einsum("bki,kio->bko", u_hat[:, k1, k2, :m], w)
    expected = torch.fft.irfftn(v_hat, s=grid, dim=(1, 2, 3), norm="ortho")
    torch.testing.assert_close(layer(u), expected, rtol=1e-12, atol=1e-12)
    seed = torch.randn_like(expected)
    ours = torch.autograd.grad(layer(u), (u, layer.weight), seed)
    theirs = torch.autograd.grad(expected, (u, layer.weight), seed)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


KINDS = {1: SpectralConv1d, 2: SpectralConv2d, 3: SpectralConv3d}


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
