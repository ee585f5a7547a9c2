"""Fourier operators: padding, frames, other points, and U-Nets on grids that they fill up."""

import math

import pytest
import torch

from operators.models.f_fno import FFNO
from operators.models.fno import FNO, UFNO
from operators.models.galerkin2d import GalerkinTransformer2d
from operators.models.unet import PlainUNet
from operators.nn.pointwise import PooledUNet, StridedUNet
from operators.nn.resample import interpolated, interpolation
from tests.operators.drawn import grid, points, shaken
from tests.oracles.plain_u_fno import plain_u_net

dims = pytest.mark.parametrize("dim", [1, 2])


def some(dim):
    """Random input on 14 (x 17) periodic points."""
    return grid(*(14, 17)[:dim], batch=3)


def small(**settings):
    torch.manual_seed(0)
    return FNO(**{"width": 6, "depth": 3, "modes": 5, "head_width": 7} | settings)


@pytest.mark.parametrize(
    ("model", "preset", "grid", "margins"),
    [
        (FNO, "darcy", (85, 421), [9, 45]),
        (FFNO, "airfoil", (221, 51), [8, 8]),
        (FFNO, "airfoil", (442, 102), [16, 16]),  # the same length on a finer mesh
        (FFNO, "pipe", (129, 129), [8, 8]),
        (FFNO, "plasticity", (101, 31), [8, 8, 8]),
        (UFNO, "gas-saturation", (200, 96), [8, 8]),
        (UFNO, "darcy", (85, 85), [11, 11]),
        (UFNO, "darcy", (170, 170), [22, 22]),
        (UFNO, "airfoil", (221, 51), [3, 13]),
        (UFNO, "pipe", (129, 129), [15, 15]),
        (UFNO, "plasticity", (101, 31), [11, 1]),
    ],
)
def test_padding_has_the_published_numbers_on_the_published_grids(model, preset, grid, margins):
    published = model.presets[preset]
    inputs, outputs = published.channels
    with torch.device("meta"):
        made = model(
            in_channels=inputs, out_channels=outputs, **{"dim": published.dim} | published.settings
        )
    assert made.margins(grid)[::-1][::2][: len(margins)] == margins
    assert not any(made.margins(grid)[::2])  # nothing before the first point


def test_a_period_is_the_same_length_on_grids_that_contain_both_ends():
    """The spacing of n of 421 points is 420/(n - 1) cells; a share of the points is another length
    on each grid."""
    on = (43, 85, 141, 211, 421)

    def lengths(**settings):
        return {(n + FNO(**settings).margins((n,))[-1]) * (420 // (n - 1)) for n in on}

    assert lengths(period=8 / 7) == {480}
    assert lengths(padding=9 / 85) == {480, 470, 468, 466}
    assert 61 + FNO(period=8 / 7).margins((61,))[-1] == 69  # 60 * 8/7 = 68.6, rounded


@pytest.mark.parametrize(
    ("settings", "n", "message"),
    [
        ({"period": 1.0}, 9, "period must be finite and above 1, .* got period=1.0"),
        ({"period": math.nan}, 9, "period must be finite and above 1, .* got period=nan"),
        ({"period": 1.2, "padding": 0.1}, 9, "without padding and padding_points"),
        ({"period": 1.05}, 9, "period=1.05 is shorter than an axis of 9 points"),
    ],
)
def test_an_impossible_period_is_refused(settings, n, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)(torch.zeros(1, n, 1), points(n).float())


def test_frames_along_an_axis_commute_with_shifts_of_space():
    model = shaken(small(out_channels=5, frame_channels=1, frame_padding=5, coordinates="none"))
    a, x = some(1)
    u = model(a, x)
    torch.testing.assert_close(model(a.roll(5, 1), x), u.roll(5, 1), rtol=1e-10, atol=1e-10)
    every = model(a, x, x[::2])
    assert torch.equal(every, u[:, ::2])


def test_padding_is_a_length_but_its_published_number_of_points_is_none():
    def changes(**settings):
        """Between the values at 27 points on grids of 27, 81, 243 and 729 cells."""
        model = shaken(small(**settings)).requires_grad_(False)

        def values(n):
            x = points(n, kind="cell")
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
    y = points(*(6, 9)[:dim], kind="cell")
    if dim == 1:
        expected = torch.einsum("mn,bnc->bmc", interpolation(x[:, 0], y[:, 0]), u)
    else:
        expected = interpolated(u, x, y)
    torch.testing.assert_close(model(a, x, y), expected)
    assert torch.equal(model(a, x, x), u)
    every = (slice(None, None, 2),) * dim
    assert torch.equal(model(a, x, x[every]), u[(slice(None), *every)])


def turned(y):
    """Points of a square, turned by half a radian around its centre."""
    (s, c), (first, second) = (math.sin(0.5), math.cos(0.5)), (y - 0.5).unbind(-1)
    return torch.stack([c * first - s * second, s * first + c * second], dim=-1) + 0.5


def small_transformer():
    return GalerkinTransformer2d(width=12, depth=1, feedforward=16, modes=3, decoder_width=6)


on_a_square = pytest.mark.parametrize("make", [lambda: small(dim=2), small_transformer])


@on_a_square
@pytest.mark.parametrize(
    ("x", "y", "name"),
    [
        (points(14, 17), turned(points(6, 9)), "y"),
        (turned(points(14, 17)), points(6, 9), "x"),
        (points(14, 17).flip(1), points(6, 9), "x"),
    ],
)
def test_other_points_that_are_no_product_grid_are_refused_in_evaluation(make, x, y, name):
    model, a = shaken(make()).eval(), some(2)[0]
    with pytest.raises(ValueError, match=f"along each axis: the points {name} must be a product"):
        model(a, x, y)
    # in training nothing is compared: there are no values
    model.train().to("meta")(*(v.to("meta") for v in (a, x, y)))


@on_a_square
def test_product_grids_with_rounded_coordinates_anywhere_are_other_points(make):
    model, a = shaken(make()).float().eval(), some(2)[0].float()
    x, y = (
        (p + torch.tensor([-7.0, 40.0])).float() * (1 + 1e-7 * torch.randn(p.shape))
        for p in (points(14, 17), points(6, 9, kind="cell").flip(0))
    )
    assert model(a, x, y).shape == (len(a), 6, 9, 1)


@on_a_square
@pytest.mark.usefixtures("unchecked")  # the checks of shapes do not compile
def test_compiled_operators_interpolate_to_other_points_in_one_graph(make):
    model, (a, x), y = shaken(make()).eval(), some(2), points(6, 9, kind="cell")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, x, y), model(a, x, y))


def test_descending_points_are_refused_beside_others():
    model, (a, x) = shaken(small()).eval(), some(1)
    assert torch.isfinite(model(a, x.flip(0))).all()
    with pytest.raises(ValueError, match="the points x must be a product grid whose coordinates"):
        model(a, x.flip(0), x)


def test_what_stands_after_the_last_points_is_zero():
    """The output on a padded grid equals that on the grid with these zeros."""
    model = shaken(PlainUNet(width=4, coordinates="none", levels=2)).eval()
    first, _, second = model.lift
    second.bias.data = -(torch.nn.functional.gelu(first.bias) @ second.weight.T).detach()
    a = torch.zeros(1, 8, 8, 1, dtype=torch.float64)  # which the first MLP maps to 0
    a[:, :7, :5] = torch.randn(1, 7, 5, 1, dtype=torch.float64)
    whole, part = (
        model(a, points(8, 8, kind="nodal")),
        model(a[:, :7, :5], points(7, 5, kind="nodal")),
    )
    torch.testing.assert_close(part, whole[:, :7, :5], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [StridedUNet, PooledUNet])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_u_net_fills_a_grid_up_with_zeros_and_cuts_them_off(kind, dim):
    net = shaken(kind(dim, 3, 2, "batch")).eval()
    sizes = (7, 5, 6)[:dim]
    u = torch.randn(2, *sizes, 3, dtype=torch.float64)
    filled = torch.zeros(2, *[8] * dim, 3, dtype=torch.float64)
    inside = tuple(slice(n) for n in sizes)
    filled[:, *inside] = u
    expected = plain_u_net(net, filled.movedim(-1, 1)).movedim(1, -1)[:, *inside]
    torch.testing.assert_close(net(u), expected, rtol=1e-10, atol=1e-10)


@dims
def test_weights_near_zero_start_as_in_the_released_code(dim):
    """Xavier-normal of gain 1/c² and √(2c)/c² on tensors with fans 2mc and 2m²c."""
    c, m = 24, 8
    model = small(dim=dim, width=c, modes=m, initialization="near-zero")
    std = math.sqrt(1 / (2 * m * c)) / c**2 if dim == 1 else 1 / (c**2 * m)
    for name, weight in model.named_parameters():
        if "convolution" in name:  # 9,216 numbers and more
            assert float(weight.detach().std()) == pytest.approx(std, rel=0.03)
