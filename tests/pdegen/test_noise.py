"""Noise: the stated law, and numbers that depend on (seed, sample, epoch) alone."""

import ast
import hashlib
import re
from itertools import product
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from pdegen.sampling.gaussian import NormalStream, PointStream
from pdegen.sampling.noise import (
    KINDS,
    BlurNoise,
    CorrelatedNoise,
    DriftNoise,
    EnsembleNoise,
    ImpulseNoise,
    MissingNoise,
    MultiplicativeNoise,
    Noise,
    NoiseKind,
    PublishedNoise,
    QuantisedNoise,
    RelativeNoise,
    SensorNoise,
    ShotNoise,
    SNRNoise,
    StudentNoise,
    pointwise_std,
)
from pdegen.schema import SchemaError

pytestmark = pytest.mark.usefixtures("shapes")

GRIDS = pytest.mark.parametrize("shape", [(24,), (6, 8)], ids=["1-D", "2-D"])
SCALED = [kind for kind in KINDS.values() if kind.uses_std]
WITH_A_STRENGTH = [kind for kind in KINDS.values() if kind is not SNRNoise]


def those(*without):
    """All kinds but these."""
    chosen = [kind for kind in KINDS.values() if kind not in without]
    return pytest.mark.parametrize("kind", chosen)


ALL = those()
WITH_LEVEL_ZERO = those(SensorNoise, SNRNoise, ImpulseNoise, DriftNoise, BlurNoise, MissingNoise)
PROPORTIONAL = those(
    SensorNoise, SNRNoise, ImpulseNoise, DriftNoise, MissingNoise, ShotNoise, QuantisedNoise
)
OWN_NUMBERS = those(PublishedNoise)
RANDOM = those(PublishedNoise, QuantisedNoise)  # a rounding error is a function of u


def fields(shape, batch=5, dtype=np.float64):
    rng = np.random.default_rng(0)
    return (2 + rng.standard_normal((batch, *shape))).astype(dtype)


def std(shape):
    return 0.5 + np.arange(np.prod(shape)).reshape(shape) / 10


def applied(kind, u, samples=None, level=0.3, seed=1, epoch=0, **words):
    samples = range(len(u)) if samples is None else samples
    return kind(level, **words)(u, seed, samples, std(u.shape[1:]), epoch)


# the laws


def size(u):
    """The root mean square of each field."""
    return np.sqrt(np.mean(u**2, axis=tuple(range(1, u.ndim)), keepdims=True))


@GRIDS
@pytest.mark.parametrize(
    ("kind", "level", "expected"),
    [
        (EnsembleNoise, 0.1, lambda u: 0.1 * std(u.shape[1:])),
        (CorrelatedNoise, 0.1, lambda u: 0.1 * std(u.shape[1:])),
        (RelativeNoise, 0.1, lambda u: 0.1 * size(u)),
        (MultiplicativeNoise, 0.1, lambda u: 0.1 * abs(u)),
        (SNRNoise, -6.0, lambda u: 10**0.3 * size(u)),
        (SNRNoise, 20.0, lambda u: 0.1 * size(u)),
    ],
)
def test_noise_is_normal_with_the_stated_deviation_at_every_point(kind, level, expected, shape):
    u = np.repeat(fields(shape, 2), 10000, axis=0)
    u[10000:] *= 10
    noise = (applied(kind, u, level=level) - u) / expected(u)
    # the deviation of N samples is off by 1/√(2N) = 0.5 %; 48 points
    assert abs(noise.std(axis=0) - 1).max() < 0.03
    assert abs(noise.mean(axis=0)).max() < 0.03
    assert stats.kstest(noise.reshape(len(u), -1)[:, 5], "norm").pvalue > 1e-3


def test_points_are_independent():
    u = np.zeros((20000, 5))
    correlation = np.corrcoef(applied(EnsembleNoise, u).T) - np.eye(5)
    assert abs(correlation).max() < 4 / np.sqrt(20000)


def test_published_noise_adds_the_small_number_of_the_normaliser():
    u, sigma = np.zeros((3, 8)), np.full(8, 2e-5)
    published, ensemble = PublishedNoise(0.1), EnsembleNoise(0.1)
    ratio = published(u, 0, range(3), sigma) / ensemble(u, 0, range(3), sigma)
    assert ratio == pytest.approx(1.5)


@pytest.mark.parametrize("length", [0.03, 0.1])
def test_correlated_noise_has_its_length_in_the_middle(length):
    n = 96
    eta = CorrelatedNoise(1.0, length)(np.zeros((6000, n)), 0, range(6000), np.ones(n))
    correlation = np.corrcoef(eta.T)[n // 2]
    r = (np.arange(n) - n // 2) / n
    near = abs(r) < 3 * length  # the boundary's mirror is farther than that
    expected = np.exp(-(r**2) / (2 * length**2))
    assert abs(correlation - expected)[near].max() < 4.5 / np.sqrt(6000)


def test_correlated_noise_in_the_square_is_correlated_along_both_axes():
    eta = CorrelatedNoise(1.0, 0.1)(np.zeros((4000, 20, 20)), 0, range(4000), np.ones((20, 20)))
    for moved in (eta[:, 12, 10], eta[:, 10, 12]):  # by one length
        measured = np.corrcoef(eta[:, 10, 10], moved)[0, 1]
        assert measured == pytest.approx(np.exp(-0.5), abs=0.04)


def test_correlated_noise_is_the_same_function_on_a_finer_grid():
    noise = CorrelatedNoise(1.0, 0.2)
    coarse = noise(np.zeros((1, 24, 24)), 0, [4], np.ones((24, 24)))
    fine = noise(np.zeros((1, 72, 72)), 0, [4], np.ones((72, 72)))
    assert abs(fine[:, 1::3, 1::3] - coarse).max() < 1e-12


@GRIDS
def test_sensors_are_as_many_as_asked_and_stay_in_place(shape):
    model, u = SensorNoise(0.1, fraction=0.25), fields(shape)
    mask = model.observed(shape, seed=1)
    assert mask.sum() == round(0.25 * np.prod(shape))
    for samples, epoch in ((range(5), 0), (range(70, 75), 3)):
        noisy = applied(SensorNoise, u, samples, epoch=epoch, fraction=0.25)
        assert (noisy[:, ~mask] == 0).all()
        assert (noisy[:, mask] != 0).all()
    assert (applied(SensorNoise, u, level=0.0, fraction=0.25)[:, mask] == u[:, mask]).all()
    assert (model.observed(shape, seed=2) != mask).any()


def test_where_sensors_are_says_nothing_of_their_noise():
    """Points are chosen by the order of random numbers, which must not be those of the noise."""
    zeros, one = np.zeros((1, 4000)), np.ones(4000)
    noisy = SensorNoise(1.0, fraction=0.1)(zeros, 0, [0], one)[0]
    seen = noisy[noisy != 0]
    assert len(seen) == 400
    assert abs(seen.mean()) < 5 / np.sqrt(400)
    assert seen.std() == pytest.approx(1, abs=5 / np.sqrt(2 * 400))


def test_more_sensors_contain_fewer():
    few, many = (SensorNoise(0.1, fraction).observed((30, 30), 0) for fraction in (0.1, 0.3))
    assert (many[few]).all()
    assert SensorNoise(0.1, 1.0).observed((5, 5), 0).all()
    assert SensorNoise(0.1, 1e-6).observed((5, 5), 0).sum() == 1


def test_published_sensors_are_the_points_of_the_released_code():
    model, u = SensorNoise(0.0, points="diffusionpde"), np.ones((2, 128, 128))
    mask = model.observed((128, 128), seed=3)
    rows = np.flatnonzero(mask).astype("<i4").tobytes()
    # numpy.random.seed(0); numpy.random.choice(128**2, 500, replace=False), sorted
    assert hashlib.sha256(rows).hexdigest()[:16] == "9d0268ad8cc24ed2"
    assert (
        model(u, 7, [0, 1], np.ones((128, 128))) == mask
    ).all()  # the seed of the noise moves no sensor
    with pytest.raises(ValueError, match="are points of 128 x 128, got 64 x 64"):
        model.observed((64, 64), 0)


def test_sensors_measure_with_the_noise_of_the_ensemble():
    u = fields((40,))
    mask = SensorNoise(0.3, 0.5).observed((40,), 1)
    noisy = applied(SensorNoise, u, fraction=0.5)
    assert (noisy[:, mask] == applied(EnsembleNoise, u)[:, mask]).all()


# what the numbers depend on


@OWN_NUMBERS
@GRIDS
def test_a_sample_does_not_depend_on_its_batch(kind, shape):
    u = fields(shape)
    batch = applied(kind, u, range(10, 15))
    assert (applied(kind, u[3:4], [13]) == batch[3]).all()
    assert (applied(kind, u[::-1].copy(), range(14, 9, -1)) == batch[::-1]).all()


@RANDOM
def test_training_and_test_samples_have_independent_noise(kind):
    u = np.ones((1, 4000))
    sigma = np.ones(4000)
    train, test = (kind(0.3)(u, 0, [sample], sigma)[0] - 1 for sample in (0, 1023))
    seen = train != -1  # at the sensors
    # two correlated fields have about n l independent values, and those of drift have two
    allowed = 1.0 if kind in (CorrelatedNoise, DriftNoise) else 4.5 / np.sqrt(seen.sum())
    assert abs(np.corrcoef(train[seen], test[seen])[0, 1]) < allowed


def test_published_noise_is_shared_by_training_and_test():
    u = fields((12,))
    assert (applied(PublishedNoise, u, range(5)) == applied(PublishedNoise, u, range(90, 95))).all()


@those(QuantisedNoise)
def test_epochs_and_seeds_have_independent_noise(kind):
    u = np.ones((2000, 6))
    sigma = np.ones(6)
    model = kind(0.3)

    def point(seed, epoch):
        values = model(u, seed, range(2000), sigma, epoch)
        return values[:, model.observed((6,), seed).argmax() if kind is SensorNoise else 2]

    first = point(0, 0)
    for other in (point(0, 1), point(0, 2), point(1, 0)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4.5 / np.sqrt(2000)
    assert (point(0, 0) == first).all()


def test_noise_is_independent_of_the_field_of_the_same_seed():
    count = 4000
    drawn = NormalStream(7).normals_of([3], count)[0]
    noise = EnsembleNoise(1.0)(np.zeros((1, count)), 7, [3], np.ones(count))[0]
    assert abs(np.corrcoef(drawn, noise)[0, 1]) < 4.5 / np.sqrt(count)


def test_kinds_stand_in_one_list(root):
    """Declarations and the format follow it, and no other text of the code lists them."""
    rows = (root / "datasets/README.md").read_text("utf-8").partition("| `--kind` |")[2]
    assert re.findall(r"^\| `([\w-]+)` \|", rows.partition("\n\n")[0], re.M) == list(KINDS)
    assert get_args(NoiseKind.model_fields["kind"].annotation) == tuple(KINDS)
    for path in (path for room in ("pdegen", "pipelines") for path in (root / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.Set):
                assert not all(kind in ast.unparse(node) for kind in KINDS), (path, node.lineno)


@PROPORTIONAL
def test_another_level_scales_the_same_noise(kind):
    u = np.ones((3, 7))
    weak, strong = applied(kind, u, level=0.1) - u, applied(kind, u, level=0.4) - u
    assert strong == pytest.approx(4 * weak, abs=1e-14)  # u is subtracted


# noise by point


def centres(n):
    along = (np.arange(n) + 0.5) / n
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1)


@pytest.mark.parametrize("kind", [
    EnsembleNoise, StudentNoise, ImpulseNoise, ShotNoise, QuantisedNoise, DriftNoise, MissingNoise,
])  # fmt: skip
def test_a_sensor_has_the_same_noise_on_every_grid_that_holds_it(kind):
    """43 x 43 cell centres are among those of 129 x 129 cells, and 7 x 7 of them again."""
    noise = kind(0.1, by="point")
    u = 1 + np.random.default_rng(0).random((2, 129, 129))
    fine = noise(u, 5, [3, 4], np.ones((129, 129)), 2)
    coarse = noise(u[:, 1::3, 1::3], 5, [3, 4], np.ones((43, 43)), 2)
    assert (fine[:, 1::3, 1::3] == coarse).all()
    points = centres(43)[3::6, 3::6]
    some = noise(u[:, 10::18, 10::18], 5, [3, 4], np.ones((7, 7)), 2, points=points)
    assert (fine[:, 10::18, 10::18] == some).all()
    assert (coarse != u[:, 1::3, 1::3]).any()


def test_words_of_a_point_are_those_of_numpy():
    points = np.array([[0.25, 0.5, 0.0], [1.0, 0.125, 2.0]])
    found = PointStream(2**64 - 5, points).uniforms_of([7, 2**63 + 1])
    for row, sample in enumerate((7, 2**63 + 1)):
        for column, x in enumerate(points):
            counter = [int(2**40 * value) for value in x]
            counter[0] -= 1  # NumPy increments it first
            key, counter = (np.array(v, np.uint64) for v in ([2**64 - 5, sample], [*counter, 0]))
            philox = np.random.Philox(key=key, counter=counter)
            expected = ((philox.random_raw(4) >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53
            assert (found[:, row, column] == expected).all()


def test_noise_by_point_is_white():
    noise = EnsembleNoise(1.0, by="point")(
        np.zeros((4, 300, 300)), 0, range(4), np.ones((300, 300))
    )
    count = noise.size
    assert abs(noise.mean()) < 4 / np.sqrt(count)
    assert noise.std() == pytest.approx(1, abs=4 / np.sqrt(2 * count))
    for other in (noise[:, 1:], noise[:, :, 1:], noise[1:]):
        same = noise[tuple(slice(n) for n in other.shape)]
        assert abs(np.corrcoef(same.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(count)


# the laws of new kinds


def test_student_noise_has_its_distribution():
    values = StudentNoise(1.0, freedom=5.0)(np.zeros((1, 10**5)), 0, [0], np.ones(10**5))[0]
    assert stats.kstest(values / np.sqrt(3 / 5), stats.t(5).cdf).pvalue > 1e-3


@pytest.mark.parametrize("mean", [0.3, 20.0, 3e6])
def test_shot_noise_counts_with_the_law_of_poisson(mean):
    """Of a level ε and σ̄ = 1, counts have the mean u/ε²."""
    u = np.full((1, 10**5), mean * 0.01)
    counts = ShotNoise(0.1)(u, 0, [0], np.ones(10**5))[0] / 0.01
    assert abs(counts - np.round(counts)).max() < 1e-6 * max(mean, 1)
    # five deviations of the mean and of the variance of 10⁵ counts
    assert counts.mean() == pytest.approx(mean, abs=5 * np.sqrt(mean / 10**5))
    assert counts.var() == pytest.approx(mean, rel=5 * np.sqrt((2 + 1 / mean) / 10**5))
    if mean < 100:
        zero = np.exp(-mean)
        share = np.mean(np.round(counts) == 0)
        assert share == pytest.approx(zero, abs=5 * np.sqrt(zero / 10**5) + 1e-9)


def test_negative_values_have_no_counts():
    noisy = ShotNoise(0.1)(np.array([[-1.0, 0.0, 1.0]]), 0, [0], np.ones(3))[0]
    assert (noisy[:2] == 0).all()
    assert noisy[2] > 0


def test_impulses_are_as_many_and_as_large_as_declared():
    for unit, size in (("deviation", 6.0), ("absolute", 3.0)):
        noise = ImpulseNoise(0.0, 0.2, 3.0, unit)
        values = noise(np.zeros((1, 10**5)), 0, [0], np.full(10**5, 2.0))[0]
        assert set(np.unique(values)) == {-size, 0.0, size}
        # five deviations of shares of 10⁵
        assert np.mean(values != 0) == pytest.approx(0.2, abs=5 * 0.4 / np.sqrt(10**5))
        assert np.mean(values > 0) == pytest.approx(0.1, abs=5 * 0.3 / np.sqrt(10**5))


def test_quantised_values_are_multiples_of_the_step():
    step, u = 0.1 * np.sqrt(12) * 2.0, fields((50,))
    noisy = QuantisedNoise(0.1)(u, 0, range(5), np.full(50, 2.0))
    assert noisy / step == pytest.approx(np.round(u / step), abs=1e-12)
    assert (QuantisedNoise(0.0, base=0.1)(u, 0, range(5), np.ones(50)) != u).all()


def test_drift_is_an_affine_function_of_the_stated_size():
    noise = DriftNoise(0.1, base=0.0)
    drift = noise(np.zeros((4000, 12, 12)), 0, range(4000), np.full((12, 12), 2.0))
    assert abs(np.diff(drift, 2, axis=1)).max() < 1e-12
    assert abs(np.diff(np.diff(drift, axis=1), axis=2)).max() < 1e-12
    law = noise.law(drift[0], drift, np.full((12, 12), 2.0))
    measured = np.einsum("sij,skl->ijkl", drift, drift) / 4000
    expected = np.einsum("nij,nkl->ijkl", law.directions, law.directions)
    assert abs(measured - expected).max() < 5 * expected.max() * np.sqrt(2 / 4000)
    with pytest.raises(ValueError, match="points in the unit interval or square"):
        noise(np.zeros((1, 2)), 0, [0], np.ones(2), points=np.array([[0.0], [2.0]]))


def test_directions_of_correlated_noise_explain_its_covariance():
    noise, std = CorrelatedNoise(0.1, 0.1), 1 + np.random.default_rng(0).random((20, 20))
    law = noise.law(std, std[None], std)
    basis = noise.basis(20)
    covariance = np.einsum("ia,ka,jb,lb->ijkl", basis, basis, basis, basis)
    covariance *= 0.01 * std[:, :, None, None] * std
    of_law = np.einsum("nij,nkl->ijkl", law.directions, law.directions)
    rest = np.einsum("ijij->ij", covariance - of_law)
    assert law.variance() == pytest.approx(np.maximum(rest, 0), abs=1e-12)
    assert rest.sum() / (0.01 * std**2).sum() < 0.01
    assert 40 < len(law.directions) < 120
    error = covariance - of_law
    assert np.linalg.norm(error) < 0.03 * np.linalg.norm(covariance)


def test_a_law_scales_with_the_assumed_level():
    """The variance of a noise three times as large, for a residual three times as large."""
    u = fields((8,))
    for kind in KINDS.values():
        law = kind(0.3).law(u[0], u, std((8,)))
        large, r = law.scaled(3.0), np.linspace(-2, 2, 8)
        assert large.variance(u[1], 3 * r) == pytest.approx(9 * law.variance(u[1], r)), kind
        assert large.std == pytest.approx(3 * law.std)


@pytest.mark.parametrize("noise", [StudentNoise(0.3, 4.0), ImpulseNoise(0.1), ShotNoise(0.1),
                                   MultiplicativeNoise(0.3)])  # fmt: skip
def test_squares_of_the_noise_over_the_variance_of_a_step_have_the_mean_one(noise):
    u = np.full((1, 10**5), 2.0)
    residual = noise(u, 0, [0], np.ones(10**5)) - u
    variance = noise.law(u[0], u, np.ones(10**5)).variance(u[0], residual[0])
    # impulses have one size, and their law assumes Gaussian ones
    allowed = 0.05 if isinstance(noise, ImpulseNoise) else 0.02
    assert np.mean(residual**2 / variance) == pytest.approx(1, abs=allowed)


# form


@WITH_LEVEL_ZERO
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_level_zero_is_a_copy_bit_for_bit(kind, dtype):
    u = fields((9,), dtype=dtype)
    u[0, :2] = -0.0, 1e-40
    noisy = applied(kind, u, level=0.0)
    assert noisy.tobytes() == u.tobytes()
    assert not np.shares_memory(noisy, u)


@ALL
def test_the_type_is_kept_and_the_computation_is_in_double(kind):
    u = fields((6, 8), dtype=np.float32)
    before = u.copy()
    noisy = applied(kind, u)
    assert noisy.dtype == np.float32
    assert (noisy == applied(kind, u.astype(np.float64)).astype(np.float32)).all()
    assert (u == before).all()


@pytest.mark.parametrize("kind", SCALED)
def test_a_missing_deviation_is_refused(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__} needs the pointwise deviation"):
        kind(0.1)(fields((4,)), 0, range(5))


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_fit_are_refused():
    u = fields((4,))
    with pytest.raises(ValueError, match=r"shape \(4,\), as the fields, got \(3,\)"):
        EnsembleNoise(0.1)(u, 0, range(5), np.ones(3))
    with pytest.raises(ValueError, match="expected 5 numbers of samples, one a row, got 3"):
        RelativeNoise(0.1)(u, 0, range(3))
    with pytest.raises(ValueError, match="1 or 2 dimensions, got 3"):
        applied(CorrelatedNoise, np.ones((1, 2, 2, 2)))


@pytest.mark.parametrize("noise", [
    *(kind(0.1 if kind is QuantisedNoise else 0.5) for kind in WITH_A_STRENGTH), SNRNoise(6.0),
])  # fmt: skip
def test_what_is_told_of_noise_is_its_deviation(noise):
    """The mean of (noise/told)² over 2000 fields is 1, but for some percent."""
    rng = np.random.default_rng(0)
    u = (1 + rng.standard_normal((2000, 1))) * (1 + np.arange(60.0))
    spread = u.std(axis=0)
    if isinstance(noise, ShotNoise):
        u = abs(u)
    noisy = noise(u, 0, range(len(u)), spread)
    laws = [noise.law(d, u, spread) for d in noisy]
    told = np.stack([law.std for law in laws])
    if laws[0].observation is not None:
        u = np.stack([laws[0].observation(field) for field in u])
    seen = noise.observed((60,), 0) if isinstance(noise, SensorNoise) else np.full(60, True)
    ratio = (noisy - u)[:, seen] / told[:, seen]
    if isinstance(noise, MissingNoise):
        ratio = ratio[noisy != 0]
    # points of relative and multiplicative noise are not alike: the mean is over all of them
    assert np.sqrt(np.mean(ratio**2)) == pytest.approx(1, abs=0.05)


def test_the_deviation_of_multiplicative_noise_differs_from_point_to_point():
    rng = np.random.default_rng(0)
    u = (1 + rng.standard_normal((2000, 1))) * (1 + np.arange(60.0))
    noise = MultiplicativeNoise(0.5)
    noisy = noise(u, 0, range(len(u)))
    told = noise.law(noisy[0], u, u.std(axis=0)).std
    # the root mean square of 2000 products of normal numbers: five deviations are 0.15
    assert np.sqrt(np.mean((noisy - u) ** 2, axis=0)) == pytest.approx(told, rel=0.15)


def test_impossible_levels_lengths_and_fractions_are_refused():
    for kind, level in product(WITH_A_STRENGTH, (-0.1, np.inf, np.nan)):
        with pytest.raises(ValueError, match="the level must be finite and >= 0"):
            kind(level)
    for level in (np.inf, np.nan):
        with pytest.raises(ValueError, match="the level must be finite"):
            SNRNoise(level)
    for length in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match="the length must be finite and > 0"):
            CorrelatedNoise(0.1, length)
    for fraction in (0.0, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"the fraction must be in \(0, 1\]"):
            SensorNoise(0.1, fraction)


# the deviation of an ensemble


def test_pointwise_deviation_is_that_of_numpy_whatever_the_blocks():
    u = fields((6, 8), batch=50, dtype=np.float32)
    whole = pointwise_std([u])
    assert whole == pytest.approx(u.astype(np.float64).std(axis=0), rel=1e-13)
    assert (pointwise_std(iter([u[:1], u[1:12], u[12:12], u[12:]])) == whole).all()


def test_a_small_spread_about_a_large_mean_is_not_lost():
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((100, 5))
    measured = pointwise_std([1e8 + spread])
    assert measured == pytest.approx(spread.std(axis=0), rel=1e-6)  # 1e8 has 1.5e-8 spacing
    assert (pointwise_std([np.full((10, 3), 0.1)]) == 0).all()


def test_a_deviation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one sample"):
        pointwise_std([])


# declarations


@pytest.mark.parametrize(
    ("content", "model"),
    [
        ({"kind": "ensemble", "level": 0.1}, EnsembleNoise(0.1)),
        ({"kind": "published", "level": 0.1}, PublishedNoise(0.1)),
        ({"kind": "relative", "level": 0}, RelativeNoise(0.0)),
        ({"kind": "snr", "level": -3.0}, SNRNoise(-3.0)),
        ({"kind": "multiplicative", "level": 0.1}, MultiplicativeNoise(0.1)),
        ({"kind": "correlated", "level": 0.1}, CorrelatedNoise(0.1, 0.1)),
        ({"kind": "correlated", "level": 0.1, "length": 0.3}, CorrelatedNoise(0.1, 0.3)),
        ({"kind": "sensors", "level": 0.1}, SensorNoise(0.1, 0.1)),
        ({"kind": "sensors", "level": 0.1, "fraction": 1.0}, SensorNoise(0.1, 1.0)),
        (
            {"kind": "sensors", "level": 0.1, "points": "diffusionpde"},
            SensorNoise(0.1, points="diffusionpde"),
        ),
        ({"kind": "student", "level": 0.1, "freedom": 5.0}, StudentNoise(0.1, 5.0)),
        (
            {"kind": "impulse", "level": 0.1, "size_unit": "absolute"},
            ImpulseNoise(0.1, 0.05, 2.0, "absolute"),
        ),
        ({"kind": "drift", "level": 0.1}, DriftNoise(0.1, 0.01)),
        ({"kind": "blur", "level": 0.1}, BlurNoise(0.1, 0.05)),
        ({"kind": "missing", "level": 0.1, "share": 0.5}, MissingNoise(0.1, 0.5)),
        ({"level": 0.1, "by": "point"}, EnsembleNoise(0.1, by="point")),
        ({"level": 0.1}, EnsembleNoise(0.1)),
    ],
)
def test_a_declaration_builds_its_model(content, model):
    declared = Noise.parse(content, "noise")
    assert declared.build() == model
    assert Noise.parse(declared.model_dump(), "noise") == declared


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "ensembel"}, "noise: kind: unknown kind 'ensembel': did you mean ensemble?"),
        ({"kind": "qqq"}, "unknown kind 'qqq': known: ensemble, relative, snr"),
        ({"kind": 3}, "unknown kind 3"),
        ({"level": -0.1}, "the level of ensemble noise must be >= 0, got -0.1"),
        ({"level": float("inf")}, "level"),
        ({"level": float("nan"), "kind": "snr"}, "level"),
        ({"level": "much"}, "level"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"kind": "sensors", "fraction": 0.0}, "fraction"),
        ({"kind": "sensors", "fraction": 1.5}, "fraction"),
        ({"kind": "sensors", "points": "diffusion"}, "unknown sensors 'diffusion'"),
        ({"kind": "sensors", "points": 3}, "unknown sensors 3"),
        (
            {"kind": "sensors", "points": "diffusionpde", "fraction": 0.2},
            "sensors have either points or a fraction, got both",
        ),
        ({"points": "diffusionpde"}, "key 'points' does not apply to ensemble"),
        ({"kind": "correlated", "length": 0.0}, "length"),
        ({"kind": "correlated", "length": float("inf")}, "length"),
        ({"length": 0.1}, "key 'length' does not apply to ensemble"),
        ({"kind": "correlated", "fraction": 0.1}, "key 'fraction' does not apply to correlated"),
        ({"kind": "student", "freedom": 2.0}, "freedom"),
        ({"kind": "missing", "share": 1.0}, "share"),
        ({"kind": "drift", "base": -0.1}, "base"),
        ({"kind": "impulse", "size_unit": "px"}, "size_unit"),
        ({"kind": "student", "size": 1.0}, "key 'size' does not apply to student"),
        ({"kind": "student", "by": "order"}, "key 'by' does not apply to student"),
        ({"levle": 0.1}, "unknown key 'levle': did you mean level?"),
    ],
)
def test_impossible_declarations_are_refused_in_one_line(changes, message):
    with pytest.raises(SchemaError) as error:
        Noise.parse({"kind": "ensemble", "level": 0.1, **changes}, "noise")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_another_kind_takes_its_own_keys():
    declared = Noise(kind="correlated", level=0.1, length=0.3)
    changed = declared.replaced({"level": 0.2}, "noise")
    assert changed.build() == CorrelatedNoise(0.2, 0.3)
