from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy.interpolate import RegularGridInterpolator

from operators.base import Operator
from operators.models.fno import FNO
from operators.symmetries import (
    DiagonalShifts,
    SquareSymmetries,
    TorusSymmetries,
    check_mean,
    square_mean,
)
from operators.transforms import Boundary, Extent, Normalizer, Predictor
from pdegen.domains import Box, CellGrid, Cloud, NodalGrid, PeriodicGrid
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.vorticity.solver import Flow
from pdegen.numerics.spectral import Torus


def square(axis):
    """The points (s, t) of an axis by itself, shape (n, n, 2)."""
    axis = torch.as_tensor(axis, dtype=torch.float32)
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)


def fields(n=9, samples=20):
    """Two channels of different units, whose deviation differs from point to point."""
    torch.manual_seed(3)
    spread = torch.rand(n, n, 2) * torch.tensor([2e-3, 5.0])
    return torch.tensor([1e-2, -3.0]) + spread * torch.randn(samples, n, n, 2)


POINTS = square(CellGrid(9).x)


def test_a_constant_channel_is_refused():
    for of in (Normalizer.of, lambda v: Normalizer.pointwise(v, POINTS)):
        with pytest.raises(ValueError, match="positive deviations"):
            of(torch.ones(4, 9, 9, 1))


@pytest.mark.parametrize("eps", [1e-5, None])
@pytest.mark.parametrize("pointwise", [True, False])
def test_moments_are_those_over_samples_in_float64(pointwise, eps):
    """Of each channel, or of each point; by default eps is a thousandth of the deviations."""
    v = fields(samples=150)  # more than are converted at a time
    exact = v.numpy().astype(np.float64)
    axes = 0 if pointwise else (0, 1, 2)
    mean, std = exact.mean(axis=axes), exact.std(axis=axes, ddof=0)
    if pointwise:
        normalizer = Normalizer.pointwise(v, POINTS, *([] if eps is None else [eps]))
        std = std + (1e-3 * np.sqrt(np.square(std).mean(axis=(0, 1))) if eps is None else eps)
    else:
        normalizer = Normalizer.of(v)
    np.testing.assert_allclose(normalizer.mean, mean, rtol=2e-7)  # rounded once
    np.testing.assert_allclose(normalizer.std, std, rtol=2e-7)
    np.testing.assert_allclose(normalizer(v, POINTS), (exact - mean) / std, atol=1e-4)
    torch.testing.assert_close(normalizer.inverse(normalizer(v, POINTS), POINTS), v)


def test_where_all_samples_agree_the_normalised_value_is_zero():
    v = fields()
    v[:, 0] = v[:, -1] = 0  # as on the walls of a nodal grid
    normalizer = Normalizer.pointwise(v, POINTS)
    assert not normalizer(v, POINTS)[:, 0].any()
    assert not normalizer.inverse(torch.zeros_like(v), POINTS)[:, -1].any()
    with pytest.raises(ValueError, match="positive deviations"):
        Normalizer.pointwise(v, POINTS, eps=0.0)


@pytest.mark.parametrize("n", [17, 4, 9])
def test_on_another_grid_the_pointwise_moments_are_interpolated_linearly(n):
    """Beyond the outermost cell centres they are continued as constants."""
    v = fields()
    normalizer = Normalizer.pointwise(v, POINTS)
    y = square(NodalGrid(n).x)
    own = POINTS[:, 0, 0].double().numpy()
    clipped = np.clip(y.double().numpy(), own[0], own[-1])
    mean, std = (
        RegularGridInterpolator((own, own), values.double().numpy())(clipped)
        for values in (normalizer.mean, normalizer.std)
    )
    w = torch.randn(3, n, n, 2)
    expected = w.numpy() * std + mean
    np.testing.assert_allclose(normalizer.inverse(w, y), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(normalizer(normalizer.inverse(w, y), y), w, rtol=1e-4, atol=1e-4)


def test_on_the_points_it_was_made_on_the_moments_are_exactly_its_own():
    normalizer = Normalizer.pointwise(fields(), POINTS)
    zero, one = torch.zeros(1, 9, 9, 2), torch.ones(1, 9, 9, 2)
    assert torch.equal(normalizer.inverse(zero, POINTS.clone())[0], normalizer.mean)
    assert torch.equal(normalizer.inverse(one, POINTS)[0], normalizer.std + normalizer.mean)


def test_pointwise_on_a_line():
    v, x = torch.randn(30, 16, 1), torch.arange(16)[:, None] / 16
    normalizer = Normalizer.pointwise(v, x)
    between = torch.tensor([[0.5 / 16], [3.25 / 16]])
    m = normalizer.mean
    expected = torch.stack([(m[0] + m[1]) / 2, 0.75 * m[3] + 0.25 * m[4]])
    torch.testing.assert_close(normalizer.inverse(torch.zeros(1, 2, 1), between)[0], expected)


@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("dim", [1, 2])
def test_pointwise_normalisers_of_the_same_points_can_be_saved_together(dim, box):
    x = POINTS if dim == 2 else torch.arange(16)[:, None] / 16
    v = torch.randn(20, *x.shape[:-1], 1)
    both = torch.nn.ModuleList(Normalizer.pointwise(v, x, box=box) for _ in range(2))
    storages = [t.untyped_storage().data_ptr() for t in (x, *both.state_dict().values())]
    assert len(set(storages)) == len(storages)
    assert safetensors.torch.save(both.state_dict())


class Constant(Operator):
    """u(y) = 1 + the mean of a, at all points asked for."""

    in_channels, out_channels, dim = 1, 1, 2

    def forward(self, a, x, y=None):
        return 1 + a.mean((1, 2), keepdim=True).expand(-1, *(x if y is None else y).shape[:2], -1)


def test_predictor_normalises_at_the_points_of_input_and_of_target():
    a, u = fields()[..., :1], fields(n=5)[..., 1:]
    y = square(CellGrid(5).x)
    input, target = Normalizer.pointwise(a, POINTS), Normalizer.pointwise(u, y)
    expected = target.mean + target.std * (1 + input(a, POINTS).mean((1, 2), keepdim=True))
    torch.testing.assert_close(Predictor(Constant(), input, target)(a, POINTS, y), expected)


def meshes(samples=20):
    """Positions of nodes of meshes that differ by sample a little, and channels u."""
    torch.manual_seed(4)
    x = 40 * torch.rand(5, 4, 2) + 0.01 * torch.randn(samples, 5, 4, 2)
    x[:, 0] = x[:1, 0]  # nodes that do not move
    return x, 7.0 + torch.randn(samples, 5, 4, 1)


def test_by_node_the_moments_are_those_over_meshes_that_differ():
    x, _ = meshes()
    normalizer, parts = (Normalizer.pointwise(v, None) for v in (x, x.split(7)))
    exact = x.numpy().astype(np.float64)
    std = exact.std(axis=0, ddof=0)
    eps = 1e-3 * np.sqrt(np.square(std).mean(axis=(0, 1)))
    for found in (normalizer, parts):
        np.testing.assert_allclose(found.mean, exact.mean(axis=0), rtol=1e-7)
        np.testing.assert_allclose(found.std, std + eps, rtol=1e-6)
    found = normalizer(x, None)
    expected = (exact - normalizer.mean.numpy()) / normalizer.std.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not found[:, 0].any()
    torch.testing.assert_close(normalizer.inverse(found, None), x)


class Placed(Operator):
    """u(y) = 1 + a₁² + y₁, with derivatives in a."""

    in_channels, out_channels, dim = 2, 1, 2

    def forward(self, a, x, y=None):
        return 1 + a[..., :1].square() + (x if y is None else y)[..., :1]


def test_by_node_an_operator_sees_positions_as_they_are():
    """Channels alone are normalised: neighbours, and derivatives along x, stay what they are."""
    x, u = meshes()
    input, target = Normalizer.pointwise(x, None), Normalizer.pointwise(u, None)
    predictor, a = Predictor(Placed(), input, target), x.clone().requires_grad_()
    found = predictor(a, x)
    inner = (x - input.mean) / input.std
    expected = (1 + inner[..., :1].square() + x[..., :1]) * target.std + target.mean
    torch.testing.assert_close(found, expected)
    (slope,) = torch.autograd.grad(found.sum(), a)
    by_hand = 2 * inner[..., :1] / input.std[..., :1] * target.std
    torch.testing.assert_close(slope, torch.cat([by_hand, torch.zeros_like(by_hand)], -1))
    one = predictor(x, x[0])  # points that all share, such as those of one mesh
    torch.testing.assert_close(one[:1], expected[:1])


def test_by_node_other_meshes_and_points_are_refused():
    x, u = meshes()
    input, target = Normalizer.pointwise(x, None), Normalizer.pointwise(u, None)
    one = Normalizer.identity(1)
    words = r"by node needs meshes of 5 x 4 nodes, got 5 x 1"
    for normal in (input, input.inverse):
        with pytest.raises(ValueError, match=words):
            normal(x[:, :, :1], None)
    with pytest.raises(ValueError, match=words):  # else the only column would be repeated
        Predictor(Placed(), input, one)(x[:, :, :1], x[:, :, :1])
    with pytest.raises(ValueError, match=words):
        Predictor(Placed(), Normalizer.identity(2), target)(x[:, :, :1], x[:, :, :1])
    for y in (x, x[0]):  # the same points, but nobody knows that
        with pytest.raises(ValueError, match="by node allows no other points y"):
            Predictor(Placed(), input, target)(x, x, y)
    free = Predictor(Placed(), input, one)  # inputs alone are by node
    assert torch.equal(free(x, x, x), free(x, x))


@pytest.mark.parametrize("own", [False, True], ids=["shared points", "points of each sample"])
@pytest.mark.parametrize("value", [0.0, 2.5])
def test_what_is_known_on_the_boundary_stands_there_and_nowhere_else(value, own):
    """The first channel is known at both ends of the second axis, which is the longer one."""
    a, x = torch.rand(3, 4, 6, 2), torch.rand(4, 6, 2)
    x = x.expand(3, -1, -1, -1) if own else x
    normal = Normalizer(torch.tensor([0.2, 0.5]), torch.tensor([3.0, 2.0]))
    free = Predictor(Both(), normal, normal)(a, x)
    found = Predictor(Both(), normal, normal, Boundary((value, None), (False, True)))(a, x)
    expected = free.clone()
    expected[:, :, [0, -1], 0] = value
    assert torch.equal(found, expected)
    assert (free[:, :, [0, -1], 0] != value).all()


class Both(Operator):
    """u(y) = a + 10 y, of two channels on as many axes."""

    in_channels, out_channels, dim = 2, 2, 2

    def forward(self, a, x, y=None):
        return a + 10 * (x if y is None else y)


@pytest.mark.parametrize("own", [False, True], ids=["shared points", "points of each sample"])
def test_an_operator_is_given_points_in_parts_of_the_box(own):
    box = Box((CellGrid(4, 10.0, -5.0), NodalGrid(6, 0.5, 2.0)))
    a, one = torch.rand(3, 4, 6, 2), torch.rand(4, 6, 2)
    x, y = (v.expand(3, -1, -1, -1) if own else v for v in (one, one.flip(0)))
    start, length = torch.tensor([-5.0, 2.0]), torch.tensor([10.0, 0.5])
    plain = Normalizer.identity(2)
    predictor = Predictor(Both(), plain, plain, extent=Extent.of(box))
    torch.testing.assert_close(predictor(a, start + length * x), a + 10 * x)
    found = predictor(a, start + length * x, start + length * y)
    torch.testing.assert_close(found, a + 10 * y)
    for domain in (Box.cell(4, 6), Cloud((3,), 2, np.zeros((3, 2)))):
        assert Extent.of(domain) is None
    assert Extent.of(Box((PeriodicGrid(4, 22.0),))) == Extent((0.0,), (22.0,))


@pytest.mark.parametrize(("shift", "reflection"), [(True, False), (False, True), (True, True)])
def test_symmetries_map_solutions_to_solutions(shift, reflection):
    """The solver applied to the transformed input gives the transformed target."""
    solve = ColeHopf(PeriodicGrid(128), viscosity=0.02)
    x = solve.grid.x
    a = np.stack([np.sin(2 * np.pi * x + s) + 0.4 * np.cos(6 * np.pi * x) for s in range(6)])
    u = solve(a, t=0.2)
    torch.manual_seed(0)
    symmetry = TorusSymmetries(shift, reflection)
    b, v = symmetry(torch.from_numpy(a)[..., None], torch.from_numpy(u)[..., None])
    np.testing.assert_allclose(solve(b[..., 0].numpy(), t=0.2), v[..., 0].numpy(), atol=1e-12)
    moved = [i for i in range(6) if not np.allclose(b[i, :, 0], a[i])]
    assert moved, "nothing was transformed"


@pytest.mark.parametrize("grid", [(6, 8), (6, 4, 8)])
def test_each_axis_of_a_torus_is_shifted_on_its_own(grid):
    """Of distinct numbers, every image is a roll of the array, or its reflection at the origin."""
    a = torch.arange(1.0, 1 + np.prod(grid)).view(1, *grid, 1).repeat(200, *[1] * (len(grid) + 1))
    torch.manual_seed(0)
    b, u = TorusSymmetries()(a, 2 * a)
    assert torch.equal(u, 2 * b)
    axes, seen = tuple(range(len(grid))), set()
    for image in b[..., 0]:
        sign = float(image.sign().flatten()[0])
        origin = np.unravel_index(int((image.abs() - 1).abs().argmin()), grid)
        expected = (
            a[0, ..., 0] if sign > 0 else -a[0, ..., 0].flip(axes).roll([1] * len(axes), axes)
        )
        assert torch.equal(image, expected.roll(origin, axes))
        seen.add((sign, *origin))
    assert len(seen) > 60  # of 96 or 384


def test_square_symmetries_map_solutions_to_solutions():
    solve = FiniteVolume(CellGrid(12), rtol=1e-12)
    a = np.random.default_rng(1).choice([3.0, 12.0], size=(8, 12, 12))
    u = solve(a)
    torch.manual_seed(0)
    b, v = SquareSymmetries()(torch.from_numpy(a)[..., None], torch.from_numpy(u)[..., None])
    # solved to relative residuals of 1e-12, of u about 0.01
    np.testing.assert_allclose(solve(b[..., 0].numpy()), v[..., 0].numpy(), atol=1e-12)
    assert not np.array_equal(b[..., 0], a)


def images(v):
    """The 8 images of a square array, by rotations and a transposition."""
    turned = [torch.rot90(v, k, (0, 1)) for k in range(4)]
    return turned + [w.transpose(0, 1) for w in turned]


def test_all_symmetries_of_the_square_are_drawn_equally_often():
    v = torch.arange(9.0).reshape(3, 3, 1)
    torch.manual_seed(0)
    b, _ = SquareSymmetries()(v.repeat(4000, 1, 1, 1), v.repeat(4000, 1, 1, 1))
    counts = [int((b == image).all((1, 2, 3)).sum()) for image in images(v)]
    assert sum(counts) == 4000
    # chi-square with 7 degrees of freedom: below 24.3 with probability 0.999
    assert sum((count - 500) ** 2 / 500 for count in counts) < 24.3


def test_the_same_symmetry_acts_on_a_target_of_another_grid():
    torch.manual_seed(0)
    centres = square(CellGrid(6).x), square(CellGrid(4).x)
    a, u = (x.repeat(50, 1, 1, 1) for x in centres)
    b, v = SquareSymmetries()(a, u)
    for i, j in product((0, -1), repeat=2):  # corners: scaled to the walls they are the same
        torch.testing.assert_close((b[:, i, j] - 0.5) * 6 / 5, (v[:, i, j] - 0.5) * 4 / 3)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        *((square(axis), "") for axis in (CellGrid(12).x, CellGrid(421).x[::3], NodalGrid(9).x)),
        *((square(axis), r"points symmetric in \(0, 1\)")
          for axis in (PeriodicGrid(12).x, CellGrid(12).x[::3])),
        (POINTS[:, 2:7], "the same points along both axes"),
    ],
)  # fmt: skip
def test_symmetries_of_the_square_need_its_points(points, message):
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        SquareSymmetries().check(points)


def test_symmetries_of_the_torus_refuse_other_domains():
    TorusSymmetries().check(Box.periodic(8))
    TorusSymmetries().check(Box.periodic(8, 6, 4))
    cloud = Cloud.of(np.random.default_rng(0).random((8, 1)))
    for domain in (Box.cell(8, 8), Box.nodal(8), cloud):
        with pytest.raises(ValueError, match="shift and reflection need periodic axes"):
            TorusSymmetries().check(domain)


def forced_flow(w):
    """Vorticity at t = 0.5 and 1, shape (samples, n, n, 2), with the published force."""
    torus = Torus((PeriodicGrid(w.shape[1]),) * 2)
    v = torus.to_modes(w)[:, None]
    steps = Flow(torus, viscosity=0.02, amplitude=5.0).solver(v, dt=0.1, tolerance=1e-6)
    return np.moveaxis(torus.to_points(steps.solve(v, [0.5, 1.0]).v[:, :, 0]), 1, -1)


def test_diagonal_shifts_map_forced_flows_to_flows():
    x, y = np.meshgrid(*[PeriodicGrid(32).x] * 2, indexing="ij")
    turns = 2 * np.pi * np.arange(6)[:, None, None] / 7
    w = np.sin(2 * np.pi * x + turns) + np.cos(4 * np.pi * y - turns) * np.sin(2 * np.pi * x)
    torch.manual_seed(0)
    shifts = DiagonalShifts()
    b, v = shifts(torch.from_numpy(w)[..., None], torch.from_numpy(forced_flow(w)))
    b = b[..., 0].numpy()
    np.testing.assert_allclose(forced_flow(b), v.numpy(), atol=1e-11)
    assert sum(not np.allclose(one, two) for one, two in zip(b, w, strict=True)) >= 3
    other = np.roll(w, 3, axis=1)  # along one axis alone the force changes
    assert not np.allclose(forced_flow(other), np.roll(forced_flow(w), 3, axis=1), atol=1e-2)


def test_diagonal_shifts_are_drawn_equally_often():
    v = torch.arange(64.0).reshape(8, 8, 1)
    torch.manual_seed(0)
    b, u = DiagonalShifts()(v.repeat(4000, 1, 1, 1), v.repeat(4000, 1, 1, 2))
    assert torch.equal(u, b.repeat(1, 1, 1, 2))
    images = [v.roll((-s, s), (0, 1)) for s in range(8)]
    counts = [int((b == image).all((1, 2, 3)).sum()) for image in images]
    assert sum(counts) == 4000
    # chi-square with 7 degrees of freedom: below 24.3 with probability 0.999
    assert sum((count - 500) ** 2 / 500 for count in counts) < 24.3


def test_diagonal_shifts_refuse_other_domains():
    def check(domain):
        DiagonalShifts().check(domain, torch.from_numpy(domain.points).float())

    check(Box.periodic(8, 8))
    cloud = Cloud.of(np.random.default_rng(0).random((8, 2)))
    for domain in (Box.periodic(8), Box.nodal(8, 8), cloud):
        with pytest.raises(ValueError, match="diagonal needs two periodic axes, the data are on a"):
            check(domain)
    with pytest.raises(ValueError, match="diagonal needs the same points along both axes"):
        check(Box.periodic(8, 16))


def test_a_mean_over_the_square_is_that_over_the_images_and_has_its_symmetries():
    torch.manual_seed(0)
    a, filters = torch.randn(3, 9, 9, 1), torch.randn(9, 9, 9, 9)

    def apply(a):  # a linear map without symmetries
        return torch.einsum("ijkl,bklc->bijc", filters, a)

    mean = square_mean(apply, a)
    turned = []
    for k in range(4):
        u, v = (apply(torch.rot90(b, k, (1, 2))) for b in (a, a.transpose(1, 2)))
        turned += [torch.rot90(u, -k, (1, 2)), torch.rot90(v, -k, (1, 2)).transpose(1, 2)]
    torch.testing.assert_close(mean, torch.stack(turned).mean(0), atol=1e-4, rtol=0)
    for image in (a.flip(1), a.transpose(1, 2), torch.rot90(a, 1, (1, 2))):
        assert not torch.allclose(apply(image), apply(a), atol=1e-2)
    rotated = torch.rot90(mean, 1, (1, 2))
    torch.testing.assert_close(square_mean(apply, torch.rot90(a, 1, (1, 2))), rotated,
                               atol=1e-4, rtol=0)  # fmt: skip
    torch.testing.assert_close(square_mean(apply, a.transpose(1, 2)), mean.transpose(1, 2),
                               atol=1e-4, rtol=0)  # fmt: skip


def test_a_predictor_takes_the_mean_in_physical_units_and_in_evaluation_alone():
    """Also with normalisers and boundary values that differ from point to point."""
    torch.manual_seed(0)
    x = square(NodalGrid(9).x)
    values = torch.randn(20, 9, 9, 1) + x[..., :1]
    normalizer = Normalizer.pointwise([values], x, None, True)
    boundary = Boundary.of(Box.nodal(9, 9), [0.0])
    operator = FNO(dim=2, width=4, depth=1, modes=3)
    plain = Predictor(operator, normalizer, normalizer, boundary).eval()
    averaged = Predictor(operator, normalizer, normalizer, boundary, mean=True).eval()
    a = torch.randn(2, 9, 9, 1)
    expected = square_mean(lambda image: plain(image, x), a)
    torch.testing.assert_close(averaged(a, x), expected, atol=0, rtol=0)
    assert not torch.allclose(expected, plain(a, x), atol=1e-3)
    assert torch.equal(averaged.train()(a, x), plain.train()(a, x))
    prepared = averaged.eval().on(x)
    assert torch.equal(prepared(a), expected)
    averaged.train()  # decided when a prediction is made
    assert torch.equal(prepared(a), plain(a, x))
    averaged.eval()
    with pytest.raises(ValueError, match="takes no mask"):
        averaged(a, x, mask=torch.ones(2, 9, 9, dtype=torch.bool))
    averaged.eval()
    for points in ((None, None), (x, x.flatten(0, 1)), (x.flatten(0, 1), None)):
        with pytest.raises(ValueError, match="needs points of a grid"):
            check_mean(*points)
    with pytest.raises(ValueError, match=r"points symmetric in \(0, 1\)"):
        averaged(a, square(PeriodicGrid(9).x))
    check_mean(x, None)
    for points in ((x, square(PeriodicGrid(9).x)), (square(PeriodicGrid(9).x), x)):
        with pytest.raises(ValueError, match=r"points symmetric in \(0, 1\)"):
            check_mean(*points)
