import numpy as np
import pytest

from pdegen.checks.check import StoreChecks
from pdegen.checks.gaussian import GaussianCheck, torus_modes
from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import Torus
from pdegen.sampling.gaussian import NormalStream, TorusGaussianField

FIELD = TorusGaussianField(sigma=np.sqrt(2) * 7**1.5, tau=7.0, alpha=2.5, modes=31)


def square(n, degree=2):
    return Torus((PeriodicGrid(n),) * 2, degree)


@pytest.mark.parametrize(("factor", "std"), [(1.0, 0.18523), (np.sqrt(2), 0.26196)])
def test_the_pointwise_deviation_is_the_published_one(factor, std):
    field = TorusGaussianField(factor * 7**1.5, 7.0, 2.5, modes=128)
    assert np.sqrt(field.pointwise_variance) == pytest.approx(std, abs=5e-6)


def test_a_sample_is_the_series_with_the_coefficients_of_its_stream():
    x = np.arange(64) / 64
    z = NormalStream(5).pairs(3, len(FIELD.wave_vectors)) * FIELD.mode_stds
    k1, k2 = 2 * np.pi * FIELD.wave_vectors.T[:, :, None, None]
    phase = k1 * x[:, None] + k2 * x
    expected = np.tensordot(z.real, np.cos(phase), 1) + np.tensordot(z.imag, np.sin(phase), 1) * -1
    found = square(96).to_points(FIELD.coefficients(square(96), 5, [3]), (64, 64))
    np.testing.assert_allclose(found[0], expected, atol=1e-13)


def test_a_device_of_pytorch_gives_the_same_samples():
    torus = square(96)
    found = FIELD(torus, 2, [3, 7], device="cpu")
    np.testing.assert_allclose(found.numpy(), FIELD(torus, 2, [3, 7]), atol=1e-13)


def findings(scale):
    torus = square(96)
    law = GaussianCheck(
        "a", lambda w: w.astype(float), torus_modes(FIELD, 64),
        np.full((64, 64), FIELD.pointwise_variance), relative=True,
    )  # fmt: skip
    v = FIELD.coefficients(torus, 0, range(300)) * scale(torus)
    w = torus.to_points(v, (64, 64)).astype(np.float32)
    return StoreChecks((law,)).check([(np.arange(300), {"a": w})])


def test_the_law_accepts_its_own_samples():
    assert not findings(lambda torus: 1.0)


@pytest.mark.parametrize(
    "scale",
    [
        lambda torus: 1.02,
        lambda torus: 1 + 0.3 * (np.abs(torus.numbers[0]) == 3) * (torus.numbers[1] == 2),
        lambda torus: 1 + 0.1 * (torus.numbers[0] > torus.numbers[1]),
        lambda torus: 1.0 * (torus.laplacian > -((2 * np.pi * 20) ** 2)),
    ],
)
def test_the_law_refuses_another_spectrum(scale):
    assert findings(scale)


CUBIC = TorusGaussianField(sigma=100.0, tau=7.0, alpha=3.0, modes=5, axes=3)


def test_a_sample_in_space_is_the_series_with_the_coefficients_of_its_stream():
    x = np.stack(np.meshgrid(*[np.arange(12) / 12] * 3, indexing="ij"))
    z = NormalStream(5).pairs(3, len(CUBIC.wave_vectors)) * CUBIC.mode_stds
    phase = 2 * np.pi * np.tensordot(CUBIC.wave_vectors, x, 1)
    expected = np.tensordot(z.real, np.cos(phase), 1) - np.tensordot(z.imag, np.sin(phase), 1)
    torus = Torus((PeriodicGrid(24),) * 3, 2)
    np.testing.assert_allclose(CUBIC(torus, 5, [3])[0, ::2, ::2, ::2], expected, atol=1e-12)
    again = CUBIC.wave_vectors[CUBIC.wave_vectors[:, 0] == 0, 1:]
    plane = TorusGaussianField(100.0, 7.0, 3.0, modes=5).wave_vectors
    assert np.array_equal(again, plane)  # the order of those with k₁ = 0


@pytest.mark.parametrize(("scale", "sound"), [(1.0, True), (1.03, False), ("along z", False)])
def test_the_law_in_space_notices_another_spectrum(scale, sound):
    torus = Torus((PeriodicGrid(12),) * 3, 1)
    law = GaussianCheck(
        "a", lambda w: w.astype(float), torus_modes(CUBIC, 12),
        np.full((12, 12, 12), CUBIC.pointwise_variance), relative=True,
    )  # fmt: skip
    v = CUBIC.coefficients(torus, 0, range(100))
    one = (torus.numbers[0] == 0) & (torus.numbers[1] == 0)
    v = v * (1 + 0.5 * one if scale == "along z" else scale)
    w = torus.to_points(v).astype(np.float32)
    assert bool(StoreChecks((law,)).check([(np.arange(100), {"a": w})])) != sound


def test_a_torus_that_does_not_keep_the_modes_is_refused():
    with pytest.raises(ValueError, match="modes up to 31 need a torus of 2 axes with these modes"):
        FIELD(square(64), 0, [0])


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match="alpha > 1"):
        TorusGaussianField(1.0, 1.0, 1.0, 4)
