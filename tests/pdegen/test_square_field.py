"""Gaussian random fields on the square: the same function everywhere, with the stated law."""

import numpy as np
import pytest
from scipy.fft import idctn

from pdegen.domains import CellGrid, NodalGrid
from pdegen.sampling.coefficients import LogNormal, TwoPhase
from pdegen.sampling.gaussian import BlockGaussianField, NormalStream, SquareGaussianField

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


@BOTH
def test_pointwise_variance(boundary):
    field, grid = a_field(boundary, 16), CellGrid(10)
    g = field(grid, 0, range(4000))
    ratio = g.var(axis=0) / field.pointwise_variance(grid)
    assert abs(ratio - 1).max() < 4.5 * np.sqrt(2 / 4000)  # 100 points


def test_mean_square_of_the_published_field():
    """0.085 in the published law (σ = τ = 3, α = 2)."""
    field = a_field(modes=421)
    assert np.sum(field.mode_stds**2) == pytest.approx(0.085, abs=5e-4)


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
    with pytest.raises(ValueError, match="phases must be positive"):
        TwoPhase(above, below)
    with pytest.raises(ValueError, match="scale must be positive"):
        LogNormal(below - 3)


@pytest.mark.parametrize(("sigma", "blocks"), [(0.0, 4), (1.0, 1)])
def test_impossible_laws_of_blocks_are_refused(sigma, blocks):
    with pytest.raises(ValueError, match="need sigma > 0, blocks >= 2"):
        BlockGaussianField(sigma, blocks)


def test_blocks_have_independent_values_in_the_order_of_rows_in_y():
    field, samples = BlockGaussianField(2.0, blocks=3), range(2000)
    g = field(CellGrid(9), 1, samples)
    values = g[:, 1::3, 1::3].transpose(0, 2, 1).reshape(-1, 9)
    assert (g == g[:, 1::3, 1::3].repeat(3, axis=1).repeat(3, axis=2)).all()
    assert (values == 2.0 * NormalStream(1).normals_of(samples, 9)).all()
    # 2,000 samples: an error of 0.09
    assert np.cov(values.T) == pytest.approx(4 * np.eye(9), abs=0.45)
    with pytest.raises(ValueError, match="3 blocks do not consist of 10 cells"):
        field(CellGrid(10), 1, samples)
