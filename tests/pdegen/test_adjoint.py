"""Derivatives of the Darcy solver: Taylor's remainder, transposes, finite differences, PyTorch."""

import numpy as np
import pytest
import torch

from pdegen.domains import CellGrid
from pdegen.equations.darcy import differentiable
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.numerics.failure import SolveError
from pdegen.sampling.gaussian import SquareGaussianField

pytestmark = pytest.mark.usefixtures("shapes")

N, BATCH = 20, 3
G = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 40)(CellGrid(N), 0, range(BATCH))
COEFFICIENTS = {
    "two-phase": np.where(G >= 0, 12.0, 3.0),
    "smooth": 3 + 9 / (1 + np.exp(-3 * G / G.std())),
    "contrast 1000": np.where(G >= 0, 1000.0, 1.0),
}
WALLS = np.sin(np.arange(4 * N).reshape(4, N))
CASES = [
    ("two-phase", "harmonic", WALLS),
    ("smooth", "arithmetic", WALLS),
    ("contrast 1000", "harmonic", 0.0),
]
# NumPy arrays by iterations, by factors, and the lines for devices on PyTorch's CPU
WAYS = {"iterated": {}, "factorised": {"factorised": True}, "on a device": {}}
RNG = np.random.default_rng(0)
DA, V = (RNG.standard_normal((2, BATCH, N, N)) for _ in range(2))


def solver(faces="harmonic", rtol=1e-13):
    return FiniteVolume(CellGrid(N), faces, rtol=rtol)


def linearised(kind, way, faces="harmonic", walls=0.0, f=1.0):
    a = COEFFICIENTS[kind]
    return solver(faces).linearise(there(a, way), f, walls, **WAYS[way])


def there(values, way):
    return torch.from_numpy(values) if way == "on a device" else values


def observed_orders(values, slope, steps):
    """Of the remainder of Taylor's formula, from step to step."""
    remainders = [np.linalg.norm(values(t) - values(0.0) - t * slope) for t in steps]
    return np.log2(np.divide(remainders[:-1], remainders[1:]))


@pytest.mark.parametrize(("kind", "faces", "walls"), CASES)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_left_of_taylors_formula_is_of_order_2(way, kind, faces, walls):
    a, fine = COEFFICIENTS[kind], solver(faces)
    da = DA[0] * a  # relative, so that no cell is near 0
    du = np.asarray(linearised(kind, way, faces, walls).jvp(there(da, way)))
    orders = observed_orders(lambda t: fine(a + t * da, walls=walls), du, (4e-3, 2e-3, 1e-3, 5e-4))
    assert orders == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(("kind", "faces", "walls"), CASES)
@pytest.mark.parametrize("way", WAYS)
def test_the_adjoint_is_the_transpose_of_the_tangent(way, kind, faces, walls):
    at = linearised(kind, way, faces, walls)
    forth = (np.asarray(at.jvp(there(DA, way))) * V).sum((2, 3))
    back = (np.asarray(at.vjp(there(V, way))) * DA).sum((2, 3))
    size = np.abs(np.asarray(at.vjp(there(V, way))) * DA).sum((2, 3))
    assert np.abs(forth - back).max() < 1e-10 * size.min()


@pytest.mark.parametrize("kind", COEFFICIENTS)
def test_the_ways_agree(kind):
    v, da, f = V[0], DA[0], 1 + V[1] ** 2
    found = []
    for way in WAYS:
        at = linearised(kind, way, "harmonic", WALLS, there(f, way))
        parts = at.u, *at.gradients(there(v, way)), at.jvp(there(da, way), there(f, way))
        found.append([np.asarray(part) for part in parts])
    for one, other in zip(found[0] * 2, found[1] + found[2], strict=True):
        assert np.abs(one - other).max() < 1e-10 * np.abs(one).max()


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_central_differences(way):
    f, fine, h = 1 + V[1] ** 2, solver(), 1e-4
    at = linearised("smooth", way, walls=WALLS, f=there(f, way))
    by_a, by_f = (np.asarray(part) for part in at.gradients(there(V[0], way)))

    def number(a, f):
        return (V[0] * fine(a, f, WALLS)).sum()

    a = COEFFICIENTS["smooth"]
    for cell in [(0, 0, 0), (1, 0, 7), (2, N - 1, N - 1), (0, 9, N - 1), (1, 10, 11)]:
        e = np.zeros_like(a)
        e[cell] = h
        # the difference has an error of h², and rounding over h
        slope = (number(a + e, f) - number(a - e, f)) / (2 * h)
        assert by_a[cell] == pytest.approx(slope, rel=1e-5, abs=1e-9)
        slope = (number(a, f + e) - number(a, f - e)) / (2 * h)
        assert by_f[cell] == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_its_samples_and_directions_are_their_own(way):
    at = linearised("two-phase", way, walls=WALLS)
    gradient, du = at.vjp(there(V, way)), at.jvp(there(DA, way))
    assert tuple(gradient.shape) == tuple(du.shape) == V.shape
    for row in range(BATCH):
        a = there(COEFFICIENTS["two-phase"][row : row + 1], way)
        alone = solver().linearise(a, walls=WALLS, **WAYS[way])
        np.testing.assert_allclose(alone.u[0], at.u[row], rtol=1e-10)
        for k in range(2):
            one = alone.vjp(there(V[k, row : row + 1], way))
            other = alone.jvp(there(DA[k, row : row + 1], way))
            np.testing.assert_allclose(one[0], gradient[k, row], rtol=1e-8, atol=1e-12)
            np.testing.assert_allclose(other[0], du[k, row], rtol=1e-8, atol=1e-12)


def test_one_solve_serves_a_gradient(monkeypatch):
    solves, at = [], linearised("two-phase", "iterated")
    inverse = at.inverse
    object.__setattr__(at, "inverse", lambda b: solves.append(b.shape) or inverse(b))
    at.gradients(V)
    at.vjp(V[0])
    at.jvp(DA[0])
    assert solves == [V.shape, (1, BATCH, N, N), (1, BATCH, N, N)]


@pytest.mark.parametrize("way", WAYS)
def test_no_misfit_has_no_gradient(way):
    at = linearised("two-phase", way)
    assert float(abs(at.vjp(there(0 * V[0], way))).max()) == 0


# what is refused


def test_a_direction_of_another_shape_is_refused(unchecked):
    with pytest.raises(ValueError, match=r"expected directions of shape .*3, 20, 20.* got \(20, 2"):
        linearised("smooth", "iterated").vjp(V[0, 0])


def test_tensors_are_not_factorised():
    with pytest.raises(ValueError, match="factorised=True takes NumPy arrays, got a tensor"):
        solver().linearise(torch.from_numpy(COEFFICIENTS["smooth"]), factorised=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_coefficient_names_its_sample(way):
    a = COEFFICIENTS["smooth"].copy()
    a[1, 2, 3] = 0
    with pytest.raises(SolveError, match="sample 1 of the batch: the coefficient must be positive"):
        solver().linearise(there(a, way), **WAYS[way])


def test_an_adjoint_that_does_not_converge_names_its_sample():
    a = np.ones((BATCH, N, N))
    a[1] = COEFFICIENTS["contrast 1000"][1]
    at = FiniteVolume(CellGrid(N), limit=3).linearise(torch.from_numpy(a), f=0.0)
    with pytest.raises(SolveError, match=r"sample 1 of the batch: the residual is .* after 3 iter"):
        at.vjp(torch.from_numpy(V * [[[[0]]], [[[1]]]]))  # of the second direction


# PyTorch


def tensor(kind="smooth", dtype=torch.float64):
    return torch.from_numpy(COEFFICIENTS[kind]).to(dtype).requires_grad_()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which PyTorch imports
@pytest.mark.parametrize("faces", ["harmonic", "arithmetic"])
@pytest.mark.parametrize("shape", [(), (4, 4), (2, 4, 4)])
def test_pytorch_agrees_that_these_are_the_derivatives(shape, faces):
    rng = np.random.default_rng(1)
    a = torch.from_numpy(rng.uniform(1, 3, (2, 4, 4))).requires_grad_()
    f = torch.from_numpy(np.asarray(rng.uniform(1, 3, shape))).requires_grad_()
    small = FiniteVolume(CellGrid(4), faces, rtol=1e-14)
    assert torch.autograd.gradcheck(
        lambda a, f: differentiable.solve(small, a, f, 0.5), (a, f), check_forward_ad=True
    )


def test_pytorch_gets_the_gradients_of_linearise():
    a, f = tensor("two-phase"), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    u = differentiable.solve(solver(), a, f)
    at = linearised("two-phase", "iterated", f=2.0)
    np.testing.assert_array_equal(u.detach(), at.u)
    u.backward(torch.from_numpy(V[0]))
    np.testing.assert_array_equal(a.grad, at.vjp(V[0]))
    assert float(f.grad) == pytest.approx(at.gradients(V[0]).f.sum())


def test_a_source_that_is_a_number_is_solved_with():
    u = differentiable.solve(solver(), tensor(), 3.0)
    np.testing.assert_allclose(u.detach(), 3 * solver()(COEFFICIENTS["smooth"]), rtol=1e-10)


def test_single_precision_is_rounded_at_the_ends_alone():
    a, f = tensor("two-phase", torch.float32), torch.ones(N, N, requires_grad=True)
    u = differentiable.solve(solver(), a, f)
    u.sum().backward()
    assert u.dtype == a.grad.dtype == f.grad.dtype == torch.float32
    assert (a.grad.shape, f.grad.shape) == (a.shape, f.shape)
    at = linearised("two-phase", "iterated")
    np.testing.assert_array_equal(a.grad, at.vjp(np.ones_like(at.u)).astype(np.float32))


def test_what_needs_no_derivative_gets_none():
    a = tensor()
    f = torch.ones(N, N, dtype=torch.float64)
    differentiable.solve(solver(), a.detach(), f.requires_grad_()).sum().backward()
    assert (a.grad, f.grad.shape) == (None, (N, N))
    assert not differentiable.solve(solver(), a.detach()).requires_grad


def test_tensors_of_the_cpu_are_solved_in_their_memory(monkeypatch):
    seen, linearise = [], FiniteVolume.linearise

    def spy(self, a, f, walls):
        seen.append(a)
        return linearise(self, a, f, walls)

    monkeypatch.setattr(FiniteVolume, "linearise", spy)
    a = tensor()
    differentiable.solve(solver(), a)
    assert isinstance(seen[0], np.ndarray)
    assert seen[0].ctypes.data == a.data_ptr()


def test_a_coefficient_that_is_laid_out_otherwise_is_solved():
    a = tensor()
    u = differentiable.solve(solver(), a.mT)
    np.testing.assert_allclose(u.detach().mT, solver()(COEFFICIENTS["smooth"]), rtol=1e-10)


def test_a_second_derivative_is_refused():
    a = tensor()
    u = differentiable.solve(solver(), a)
    with pytest.raises(RuntimeError, match="no second derivative: call backward without create_gr"):
        torch.autograd.grad(u.sum(), a, create_graph=True)
