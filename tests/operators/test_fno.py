"""The Fourier neural operator against its transcription with torch.fft, channels first."""

import math

import pytest
import torch
from torch.nn import functional as F

from operators.models.fno import CAO, FIRST, FNO, PLUS
from operators.nn.fourier import FourierLayer
from operators.nn.resample import interpolated, interpolation
from tests.operators.drawn import shaken

VARIANTS = {
    "2021": {},
    "padded": {"padding": 0.25},
    "2020": FIRST,
    "plus": PLUS,
    "flow": {**PLUS, "normalization": "instance"},
    "cao": CAO,
}
variants = pytest.mark.parametrize("variant", VARIANTS)
dims = pytest.mark.parametrize("dim", [1, 2])


def periodic(n):
    return torch.arange(n, dtype=torch.float64) / n


def points(*axes):
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def some(dim, channels=1, batch=3):
    """Random input on 14 (x 17) periodic points."""
    x = points(*[periodic(n) for n in (14, 17)[:dim]])
    return torch.randn(batch, *x.shape[:-1], channels, dtype=torch.float64), x


def small(**settings):
    torch.manual_seed(0)
    return FNO(**{"width": 6, "depth": 3, "modes": 5, "head_width": 7} | settings)


def test_published_padding_has_nine_points_on_its_grid():
    model = small(dim=2, padding=FNO.presets["darcy"].settings["padding"])
    assert model.margins((85, 421)) == [0, 0, 0, 45, 0, 9]
    assert small(dim=2, padding_points=9).margins((85, 421)) == [0, 0, 0, 9, 0, 9]


def spectral(u, weight, m):
    """irfft(W rfft(u)), (batch, c, *grid)."""
    w = torch.view_as_complex(weight.detach())
    if u.ndim == 3:
        u_hat = torch.fft.rfft(u)
        v_hat = torch.zeros_like(u_hat)
        v_hat[..., :m] = torch.einsum("bim,mio->bom", u_hat[..., :m], w)
        return torch.fft.irfft(v_hat, n=u.shape[-1])
    u_hat = torch.fft.rfft2(u)
    m1, m2 = m if isinstance(m, list) else (m, m)
    v_hat = torch.zeros_like(u_hat)
    v_hat[:, :, :m1, :m2] = torch.einsum("bikl,klio->bokl", u_hat[:, :, :m1, :m2], w[0])
    # weight[1, 0] is that of the frequency -1: from the last row backwards
    second = u_hat[:, :, -m1:, :m2]
    v_hat[:, :, -m1:, :m2] = torch.einsum("bikl,klio->bokl", second, w[1].flip(0))
    return torch.fft.irfft2(v_hat, s=u.shape[-2:])


def transcription(model, a, x, padding=0.0, sigma=F.gelu, last=False, plus=False, norm="none"):
    """Padding in points; the 1 x 1 convolutions of the published code as sums over channels."""

    def linear(u, layer):
        bias = layer.bias.reshape(1, -1, *[1] * (u.ndim - 2))
        return torch.einsum("oi,bi...->bo...", layer.weight, u) + bias

    def instance(u):
        return F.instance_norm(u) if norm == "instance" else u

    grid = x.shape[:-1]
    u = torch.cat([a, x.expand(len(a), *x.shape)], -1).movedim(-1, 1)
    u = linear(u, model.lift)
    shares = padding if isinstance(padding, list) else [padding] * len(grid)
    filled = [n + round(n * share) for n, share in zip(grid, shares, strict=True)]
    padded = torch.zeros(*u.shape[:2], *filled, dtype=u.dtype)
    inside = (..., *[slice(n) for n in grid])
    padded[inside] = u
    u = padded
    layers = [layer for layer in model.layers if isinstance(layer, FourierLayer)]
    for layer in layers:
        k = instance(spectral(instance(u), layer.convolution.weight, layer.convolution.modes))
        if plus:
            k = linear(sigma(linear(k, layer.channel_mlp[0])), layer.channel_mlp[2])
        u = k + linear(u, layer.pointwise)
        if norm == "batch":
            b = layer.batch_norm
            mean, var = b.running_mean, b.running_var
            u = F.batch_norm(u, mean, var, b.weight, b.bias, training=model.training, momentum=0.0)
        if last or layer is not layers[-1]:
            u = sigma(u)
    u = linear(sigma(linear(u[inside], model.head[0])), model.head[2])
    return u.movedim(1, -1)


@dims
@variants
def test_equals_the_transcription(variant, dim):
    settings = VARIANTS[variant]
    model = shaken(small(dim=dim, in_channels=2, out_channels=3, **settings))
    a, x = some(dim, channels=2)
    plain = {
        "padding": settings.get("padding", 0.0),
        "sigma": {"relu": F.relu, "silu": F.silu}.get(settings.get("activation"), F.gelu),
        "last": settings.get("last_activation", False),
        "plus": settings.get("channel_mlp", False),
        "norm": settings.get("normalization", "none"),
    }
    expected = transcription(model.eval(), a, x, **plain)
    torch.testing.assert_close(model(a, x), expected, rtol=1e-10, atol=1e-10)
    expected = transcription(model.train(), a, x, **plain)  # other where there is a batch norm
    torch.testing.assert_close(model(a, x), expected, rtol=1e-10, atol=1e-10)


def test_along_indices_it_is_the_released_geo_fno_of_meshes():
    """neuraloperator/Geo-FNO, airfoils/naca_geofno.py: the positions of the mesh are a."""
    settings = {"modes": [6, 3], "padding": [0.2, 0.1], "indices": True}
    model = shaken(small(dim=2, in_channels=2, **settings))
    a = torch.randn(3, 14, 17, 2, dtype=torch.float64)
    places = points(*[torch.linspace(0, 1, n, dtype=torch.float64) for n in (14, 17)])
    expected = transcription(model, a, places, [0.2, 0.1])
    torch.testing.assert_close(model(a, a), expected, rtol=1e-10, atol=1e-10)
    assert not model.other_points


def published_3d(model, a, frames, padding):
    """The published forward on the square, channels first: [a, x, y, t] at each frame, of points
    j/(n - 1)."""

    def conv(u, layer):
        return torch.einsum("oi,bixyt->boxyt", layer.weight, u) + layer.bias[:, None, None, None]

    def transformed(u, weight, m):
        w = torch.view_as_complex(weight.detach())
        u_hat = torch.fft.rfftn(u, dim=(-3, -2, -1))
        v_hat = torch.zeros_like(u_hat)
        for s1, rows in enumerate((slice(m), slice(-m, None))):
            for s2, columns in enumerate((slice(m), slice(-m, None))):
                block = w[s1, s2].flip([axis for axis, s in ((0, s1), (1, s2)) if s])
                seen = u_hat[:, :, rows, columns, :m]
                v_hat[:, :, rows, columns, :m] = torch.einsum("biklt,kltio->boklt", seen, block)
        return torch.fft.irfftn(v_hat, s=u.shape[-3:], dim=(-3, -2, -1))

    b, n1, n2, c = a.shape
    u = a.reshape(b, n1, n2, 1, c).repeat(1, 1, 1, frames, 1)
    axes = [torch.linspace(0, 1, n, dtype=a.dtype) for n in (n1, n2, frames)]
    u = torch.cat([u, points(*axes).expand(b, -1, -1, -1, -1)], -1).permute(0, 4, 1, 2, 3)
    u = F.pad(conv(u, model.lift), [0, padding])
    layers = [layer for layer in model.layers if isinstance(layer, FourierLayer)]
    for layer in layers:
        k = transformed(u, layer.convolution.weight, layer.convolution.modes)
        u = k + conv(u, layer.pointwise)
        u = F.gelu(u) if layer is not layers[-1] else u
    u = u[..., :-padding]
    return conv(F.gelu(conv(u, model.head[0])), model.head[2])  # (batch, own, n1, n2, frames)


@pytest.mark.parametrize("own", [1, 2])
def test_with_frames_along_an_axis_it_equals_the_published_forward(own):
    model = shaken(
        small(dim=2, in_channels=3, out_channels=4 * own, modes=4, frame_channels=own,
              frame_padding=6)
    )  # fmt: skip
    axes = [torch.linspace(0, 1, n, dtype=torch.float64) for n in (8, 9)]
    a, x = torch.randn(2, 8, 9, 3, dtype=torch.float64), points(*axes)
    expected = published_3d(model, a, 4, 6).permute(0, 2, 3, 4, 1)  # frame after frame
    torch.testing.assert_close(model(a, x), expected.flatten(3), rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="frames of 5 channels, got 4 channels in all"):
        small(dim=2, out_channels=4, frame_channels=5)(*some(2))


def test_frames_along_an_axis_are_of_intervals_too_and_commute_with_shifts_of_space():
    model = shaken(small(out_channels=5, frame_channels=1, frame_padding=5, coordinates="none"))
    a, x = some(1)
    u = model(a, x)
    assert u.shape == (3, 14, 5)
    torch.testing.assert_close(model(a.roll(5, 1), x), u.roll(5, 1), rtol=1e-10, atol=1e-10)
    every = model(a, x, x[::2])
    assert torch.equal(every, u[:, ::2])


def test_padding_is_a_length_but_its_published_number_of_points_is_none():
    def changes(**settings):
        """Between the values at 27 points on grids of 27, 81, 243 and 729 cells."""
        model = shaken(small(**settings)).requires_grad_(False)

        def values(n):
            x = points((torch.arange(n, dtype=torch.float64) + 0.5) / n)
            return model(torch.cos(3 * x)[None], x)[0, n // 54 :: n // 27]

        return [float((values(3 * n) - values(n)).abs().max()) for n in (27, 81, 243)]

    # a third of the cells is a whole number: what is left is the error of the midpoint rule, h²
    first, second, third = changes(padding=1 / 3)
    assert first / second == pytest.approx(9, rel=0.1)
    assert second / third == pytest.approx(9, rel=0.1)
    # the same 9 points on 27 cells, but then the period goes from 4/3 to 1
    assert changes(padding_points=9)[0] > 100 * first


@dims
def test_predicts_at_other_points_by_linear_interpolation(dim):
    model = shaken(small(dim=dim))
    a, x = some(dim)
    u = model(a, x)
    y = points(*[(torch.arange(n, dtype=torch.float64) + 0.5) / n for n in (6, 9)[:dim]])
    if dim == 1:
        expected = torch.einsum("mn,bnc->bmc", interpolation(x[:, 0], y[:, 0]), u)
    else:
        expected = interpolated(u, x, y)
    torch.testing.assert_close(model(a, x, y), expected)
    assert torch.equal(model(a, x, x), u)
    every = (slice(None, None, 2),) * dim
    assert torch.equal(model(a, x, x[every]), u[(slice(None), *every)])


@dims
def test_starts_as_the_published_codes_do(dim):
    c, m = 24, 8
    for weight in weights(small(dim=dim, width=c, modes=m)):  # 9,216 numbers and more
        assert float(weight.min()) >= 0
        assert float(weight.max()) == pytest.approx(1 / c**2, rel=0.01)
        assert float(weight.mean()) == pytest.approx(1 / (2 * c**2), rel=0.03)
    # Xavier-normal of gain 1/c² and √(2c)/c² on tensors with fans 2mc and 2m²c
    std = math.sqrt(1 / (2 * m * c)) / c**2 if dim == 1 else 1 / (c**2 * m)
    for weight in weights(small(dim=dim, width=c, modes=m, initialization="near-zero")):
        assert float(weight.std()) == pytest.approx(std, rel=0.03)


def weights(model):
    return [v.detach() for k, v in model.named_parameters() if "convolution" in k]
