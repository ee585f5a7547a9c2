"""Gaussian random fields on the square: the same function everywhere, with the stated law."""

import numpy as np
import pytest
from scipy import stats
from scipy.fft import idctn

from pdegen.domains import CellGrid, NodalGrid
from pdegen.sampling.coefficients import LogNormal, TwoPhase
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

pytestmark = pytest.mark.usefixtures("shapes")

BOTH = pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])


def a_field(boundary="neumann", modes=24, **words):
    return SquareGaussianField(
        boundary, **{"sigma": 3.0, "tau": 3.0, "alpha": 2.0, **words}, modes=modes
    )


@BOTH
def test_the_same_function_at_two_resolutions(boundary):
    field = a_field(boundary)
    coarse, fine = field(CellGrid(9), 1, [5]), field(CellGrid(27), 1, [5])
    assert abs(fine[:, 1::3, 1::3] - coarse).max() < 1e-12  # centres of three cells meet
    nodes = field(NodalGrid(17), 1, [5])
    assert abs(field(NodalGrid(33), 1, [5])[:, ::2, ::2] - nodes).max() < 1e-12


@BOTH
def test_more_modes_refine_the_same_function(boundary):
    grid = CellGrid(64)
    few, many = a_field(boundary, 16)(grid, 0, [3]), a_field(boundary, 32)(grid, 0, [3])
    added = many - few
    basis = a_field(boundary, 32).basis(grid)
    coefficients = np.linalg.lstsq(basis, np.linalg.lstsq(basis, added[0])[0].T)[0].T
    assert abs(coefficients[:16, :16]).max() < 1e-12
    assert abs(coefficients[16:, :16]).max() > 1e-4


def test_a_sample_does_not_depend_on_its_batch():
    field, grid = a_field(), CellGrid(20)
    batch = field(grid, 7, range(4))
    assert (batch[2] == field(grid, 7, [2])[0]).all()
    assert abs(batch[0] - batch[1]).max() > 0.1
    assert abs(field(grid, 8, [2]) - batch[2]).max() > 0.1


def test_is_the_inverse_cosine_transform_of_the_published_script():
    n = 24
    field = a_field(modes=n)
    p, q = np.indices((n, n))
    xi = NormalStream(0).normals_of([4], n * n)[0][np.maximum(p, q) ** 2 + np.where(
        p < q, p, 2 * np.maximum(p, q) - q)]  # fmt: skip
    scale = 3.0 * (np.pi**2 * (p**2 + q**2) + 9) ** -1.0  # tau^(alpha-1) (...)^(-alpha/2)
    scale[0, 0] = 0
    expected = idctn(n * scale * xi, norm="ortho")
    assert abs(field(CellGrid(n), 0, [4])[0] - expected).max() < 1e-12


def test_the_stream_is_read_once_shell_by_shell():
    """Every place once; the first m² places are the coefficients with p, q < m."""
    places = a_field(modes=6)._shells
    for m in range(1, 7):
        assert sorted(places[:m, :m].ravel()) == list(range(m * m))


@BOTH
def test_coefficients_have_their_variances(boundary):
    field, samples = a_field(boundary, 6), 4000
    grid = CellGrid(12)
    inverse = np.linalg.pinv(field.basis(grid))
    c = inverse @ field(grid, 0, range(samples)) @ inverse.T
    ratio = c[:, 1:, 1:].var(axis=0) / field.mode_deviations[1:, 1:] ** 2
    # the variance of a sample variance is 2/N; 25 of them, 3.5 deviations
    assert abs(ratio - 1).max() < 3.5 * np.sqrt(2 / samples)
    assert stats.kstest(c[:, 1, 2] / field.mode_deviations[1, 2], "norm").pvalue > 1e-3


@BOTH
def test_pointwise_variance(boundary):
    field, grid = a_field(boundary, 16), CellGrid(10)
    g = field(grid, 0, range(4000))
    ratio = g.var(axis=0) / field.pointwise_variance(grid)
    assert abs(ratio - 1).max() < 4.5 * np.sqrt(2 / 4000)  # 100 points


def test_boundary_conditions():
    nodes = NodalGrid(2001)
    dirichlet = a_field("dirichlet", 8)(nodes, 0, [0])[0]
    assert max(abs(dirichlet[0]).max(), abs(dirichlet[:, -1]).max()) < 1e-12
    neumann = a_field("neumann", 8)(nodes, 0, [0])[0]
    slope = (-3 * neumann[0] + 4 * neumann[1] - neumann[2]) * 1000  # second order at x = 0
    inside = (neumann[1001] - neumann[999]) * 1000
    assert abs(slope).max() < 1e-3 * abs(inside).max()


def test_neumann_fields_have_no_mean():
    assert abs(a_field(modes=16)(CellGrid(16), 0, range(5)).mean(axis=(1, 2))).max() < 1e-14


def test_mean_square_of_the_published_field():
    """0.085 in the published law (σ = τ = 3, α = 2)."""
    field = a_field(modes=421)
    assert np.sum(field.mode_deviations**2) == pytest.approx(0.085, abs=5e-4)


def test_coefficients():
    g = a_field()(CellGrid(30), 0, [0])
    a = TwoPhase(12.0, 3.0)(g)
    assert set(np.unique(a)) == {3.0, 12.0}
    assert ((a == 12) == (g >= 0)).all()
    assert np.log(LogNormal(2.0)(g) / 2) == pytest.approx(g)


@pytest.mark.parametrize(
    "words",
    [{"sigma": 0.0}, {"tau": -1.0}, {"alpha": 1.0}, {"modes": 1}, {"boundary": "robin"}],
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_laws_are_refused(words):
    with pytest.raises(ValueError, match=next(iter(words))):
        a_field(**words)


@pytest.mark.parametrize(("above", "below"), [(0.0, 1.0), (1.0, -3.0)])
def test_phases_must_be_positive(above, below):
    with pytest.raises(ValueError, match="phases are positive"):
        TwoPhase(above, below)
    with pytest.raises(ValueError, match="scale is positive"):
        LogNormal(below - 3)
