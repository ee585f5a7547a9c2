"""The truncated transforms against torch.fft."""

import pytest
import torch

from operators.nn.spectral import SpectralConv1d


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


def test_is_the_same_convolution_on_every_grid():
    torch.manual_seed(0)
    layer = SpectralConv1d(1, 1, modes=8, std=1.0).double()

    def values(n):
        x = torch.arange(n, dtype=torch.float64) / n
        return layer(torch.sin(2 * torch.pi * 3 * x).add(0.5)[None, :, None])[0, :, 0]

    torch.testing.assert_close(values(256)[::8], values(32))


def test_starts_as_the_published_code_does():
    torch.manual_seed(0)
    for c_in, std in ((96, 4.52e-6), (48, 1.10e-5)):  # the published decoder's two layers
        weight = SpectralConv1d(c_in, 48, modes=16).weight
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.02)  # 70,000 draws and more


def test_refuses_a_grid_too_coarse_for_its_modes():
    with pytest.raises(ValueError, match="16 modes need a grid of at least 32 points, got 31"):
        SpectralConv1d(1, 1, modes=16)(torch.zeros(1, 31, 1))
