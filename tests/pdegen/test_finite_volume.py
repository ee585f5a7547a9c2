"""-div(a grad u) = f by finite volumes: exact solutions, invariants, an independent solve."""

import numpy as np
import pytest
import torch

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import Diffusion, FiniteVolume, Poisson, Solution
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import SquareGaussianField
from tests.oracles import five_points

pytestmark = pytest.mark.usefixtures("shapes")

FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 64)


def field(n, sample=0):
    return FIELD(CellGrid(n), 0, [sample])


def two_phase(n, sample=0, above=12.0, below=3.0):
    return np.where(field(n, sample) >= 0, above, below)


def relative(u, v):
    return np.linalg.norm(u - v) / np.linalg.norm(v)


# exact solutions


@pytest.mark.parametrize("faces", ["harmonic", "arithmetic"])
def test_second_order_on_a_smooth_problem(faces):
    def error(n):
        x, y = np.meshgrid(CellGrid(n).x, CellGrid(n).x, indexing="ij")
        a = 2 + np.sin(np.pi * x) * np.cos(2 * np.pi * y)
        a_x = np.pi * np.cos(np.pi * x) * np.cos(2 * np.pi * y)
        a_y = -2 * np.pi * np.sin(np.pi * x) * np.sin(2 * np.pi * y)
        u = np.exp(x) * np.sin(3 * y) + x * y**2
        u_x, u_y = np.exp(x) * np.sin(3 * y) + y**2, 3 * np.exp(x) * np.cos(3 * y) + 2 * x * y
        laplacian = np.exp(x) * np.sin(3 * y) * (1 - 9) + 2 * x
        f = -(a * laplacian + a_x * u_x + a_y * u_y)
        s, one = CellGrid(n).x, np.ones(n)
        edges = ((0 * one, s), (one, s), (s, 0 * one), (s, one))
        walls = np.array([np.exp(p) * np.sin(3 * q) + p * q**2 for p, q in edges])
        solver = FiniteVolume(CellGrid(n), faces, rtol=1e-12)
        return relative(solver(a[None], f, walls)[0], u)

    errors = [error(n) for n in (20, 40, 80)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_laminate_is_exact(axis):
    """Between walls with values 0 and 1 and no source, the flux through layers is constant."""
    n = 30
    layers = np.repeat([12.0, 3.0, 7.0, 0.5, 100.0, 1.0], 5)
    ends = np.concatenate([[0.0], np.cumsum(1 / layers) / n])
    exact = (ends[:-1] + ends[1:]) / 2 / ends[-1]  # the middle of each cell
    a = np.tile(layers[:, None], (1, n))
    walls = np.array([np.zeros(n), np.ones(n), exact, exact])  # of x = 0, x = 1, y = 0, y = 1
    if axis:
        a, walls = a.T.copy(), walls[[2, 3, 0, 1]]
    u = FiniteVolume(CellGrid(n), rtol=1e-13)(a[None], 0.0, walls)[0]
    u = u.T if axis else u
    assert abs(u - exact[:, None]).max() < 1e-10


# agreement


@pytest.mark.parametrize("faces", ["harmonic", "arithmetic"])
@pytest.mark.parametrize("kind", ["two-phase", "three-phase", "log-normal"])
def test_agrees_with_an_independent_direct_solve(kind, faces):
    n, rng = 33, np.random.default_rng(0)
    g = field(n)[0]
    a = {
        "two-phase": np.where(g >= 0, 12.0, 3.0),
        "three-phase": np.select([g > 0.2, g > -0.1], [5.0, 1.0], 0.1),
        "log-normal": np.exp(g),
    }[kind]
    f, walls = rng.standard_normal((n, n)), rng.standard_normal((4, n))
    means = {"harmonic": lambda v, w: 2 * v * w / (v + w), "arithmetic": lambda v, w: (v + w) / 2}
    expected = five_points.solve(a, f, walls, means[faces])
    solver = FiniteVolume(CellGrid(n), faces, rtol=1e-13)
    assert relative(solver(a[None], f, walls)[0], expected) < 1e-10
    assert relative(solver(a[None])[0], five_points.solve(a, mean=means[faces])) < 1e-10


def test_poisson_inverts_the_laplacian():
    grid, rng = CellGrid(37), np.random.default_rng(0)  # a prime number of cells
    u = rng.standard_normal((37, 37))
    laplacian = Diffusion(np.ones((1, 37, 37)), "harmonic")
    assert abs(Poisson(grid)(laplacian(u[None])[0]) - u).max() < 1e-12


@pytest.mark.parametrize("kind", ["two-phase", "log-normal"])
def test_other_array_namespaces_agree_with_numpy(kind):
    a = np.concatenate([two_phase(40, 0), two_phase(40, 1)])
    a = a if kind == "two-phase" else np.exp(np.concatenate([field(40, 0), field(40, 1)]))
    solver = FiniteVolume(CellGrid(40), rtol=1e-12)
    expected, got = solver.solve(a), solver.solve(torch.from_numpy(a))
    assert relative(got.u.numpy(), expected.u) < 1e-11
    assert float(got.residual.max()) < 1e-12
    assert abs(got.iterations.numpy() - expected.iterations).max() <= 2


def test_a_batch_equals_its_samples():
    a = np.concatenate([two_phase(32, 0), np.exp(field(32, 1)), np.full((1, 32, 32), 2.0)])
    solver = FiniteVolume(CellGrid(32))
    assert (solver(a) == np.concatenate([solver(a[i : i + 1]) for i in range(3)])).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_grids(n):
    a = np.arange(1.0, n * n + 1).reshape(n, n)
    u = FiniteVolume(CellGrid(n), rtol=1e-12)(a[None])[0]
    assert relative(u, five_points.solve(a)) < 1e-11


# accuracy of the iterations


def test_iterations_do_not_grow_with_the_grid():
    counts = [
        int(FiniteVolume(CellGrid(n)).solve(two_phase(n)).iterations[0]) for n in (43, 85, 341)
    ]
    assert max(counts) <= 22  # contrast 4: (√4 - 1)/(√4 + 1) = 1/3 a step


@pytest.mark.parametrize("contrast", [1e3, 1e6, 1e8])
def test_iterations_hardly_grow_with_the_contrast(contrast):
    solution = FiniteVolume(CellGrid(85)).solve(two_phase(85, above=contrast, below=1.0))
    assert 0 < solution.iterations[0] <= 300
    assert solution.residual[0] <= 1e-8


@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy])
def test_the_residual_is_that_of_the_solution(array):
    a = two_phase(50)
    solver = FiniteVolume(CellGrid(50), rtol=1e-5)
    solution = solver.solve(array(a))
    operator = Diffusion(a, "harmonic")
    expected = np.linalg.norm(1 - 2500 * operator(np.asarray(solution.u))) / 50  # ‖f‖ of 2500 ones
    assert float(solution.residual[0]) == pytest.approx(expected, rel=1e-6)
    assert 1e-9 < solution.residual[0] <= 1e-5


def test_what_the_iterations_do_not_solve_is_solved_directly():
    rng = np.random.default_rng(0)
    a = 10.0 ** rng.uniform(-4, 4, (1, 40, 40))  # rough: neither few jumps nor smooth
    solution = FiniteVolume(CellGrid(40), limit=20).solve(a)
    assert solution.iterations[0] == 0
    assert solution.residual[0] <= 1e-8
    assert relative(solution.u[0], five_points.solve(a[0])) < 1e-10


# refusals


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_coefficient_that_is_not_positive_names_its_sample(bad):
    a = np.ones((3, 8, 8))
    a[1, 2, 3] = bad
    with pytest.raises(SolveError, match="sample 1 of the batch: the coefficient must be pos"):
        FiniteVolume(CellGrid(8))(a)


def test_an_unconverged_batch_on_a_device_names_its_sample():
    a = torch.from_numpy(two_phase(32))
    with pytest.raises(SolveError, match=r"after 3 iterations, above rtol = 1e-08"):
        FiniteVolume(CellGrid(32), limit=3)(a)


@pytest.mark.parametrize("row", range(3))
def test_an_unsolved_right_hand_side_names_its_sample(row):
    found = Solution(np.zeros((3, 4, 4)), 1.0 * (np.arange(3) == row), np.full(3, 7))
    with pytest.raises(SolveError, match=r"is 1\.0e\+00 after 7 iterations") as caught:
        FiniteVolume(CellGrid(4))._checked(found, np.ones((3, 4, 4)))
    assert caught.value.row == row


@pytest.mark.usefixtures("unchecked")
def test_other_shapes_are_refused():
    solver = FiniteVolume(CellGrid(8))
    with pytest.raises(ValueError, match=r"expected a of shape \(batch, 8, 8\), got \(8, 8\)"):
        solver(np.ones((8, 8)))
    with pytest.raises(
        ValueError, match=r"boundary_value must be a number or of shape \(4, 8\), got \(4, 7\)"
    ):
        solver(np.ones((1, 8, 8)), boundary_value=np.ones((4, 7)))


@pytest.mark.parametrize(
    "words", [{"faces": "geometric"}, {"rtol": 0.0}, {"rtol": 1.0}, {"limit": -1}]
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_settings_are_refused(words):
    with pytest.raises(ValueError, match=next(iter(words))):
        FiniteVolume(CellGrid(8), **words)
