"""Losses against the formulas written out, in float64."""

import math

import numpy as np
import pytest
import torch

from operators.norms import (
    RelativeH1,
    RelativeL1,
    RelativeL2,
    WeightedH1,
    by_column,
    central_difference,
    has_one_spacing,
    mean_defined,
    over_defined,
    relative_error,
    relative_l2,
    remarks,
    rising,
    undefined,
)
from pdegen.domains import Box, CellGrid, Curvilinear

pytestmark = pytest.mark.usefixtures("shapes")


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return tuple(torch.from_numpy(rng.standard_normal((3, 10, 1))) for _ in range(2))


def dense_h1(p, u, gamma, periodic):
    total = 0.0
    for prediction, target in zip(p[..., 0].numpy(), u[..., 0].numpy(), strict=True):
        n = len(target)
        error = prediction - target
        steep, slope = ((np.roll(v, -1) - np.roll(v, 1)) * n / 2 for v in (target, error))
        slope = slope if periodic else slope[1:-1]
        total += math.sqrt(sum(error**2) / sum(target**2))
        total += math.sqrt(gamma / n * sum(slope**2) / sum(steep**2))
    return total / len(p)


@pytest.mark.parametrize("gamma", [0.0, 0.1])
@pytest.mark.parametrize("periodic", [True, False])
def test_h1_loss_is_the_unsquared_sum_with_weight_root_gamma_h(pair, periodic, gamma):
    loss = RelativeH1(gamma=gamma, periodic=periodic)(*pair, pair[1])
    assert float(loss) == pytest.approx(dense_h1(*pair, gamma, periodic), rel=1e-12)


def test_relative_l2_is_one_number_for_each_sample(pair):
    p, u = pair
    expected = torch.sqrt(((p - u) ** 2).sum((1, 2)) / (u**2).sum((1, 2)))
    torch.testing.assert_close(relative_l2(p, u), expected)


def test_nothing_is_relative_to_a_run_of_channels_that_is_0(pair):
    p, u = (v.expand(-1, -1, 2).clone() for v in pair)
    u[..., 0] = 0
    found = relative_error(p, u, parts=2)
    assert found[:, 0].isnan().all()
    torch.testing.assert_close(found[:, 1], relative_l2(*pair))
    assert relative_error(torch.ones(1, 4, 2), torch.zeros(1, 4, 2)).isnan().all()


def test_central_difference_has_order_two():
    def error(n):
        x = torch.arange(n, dtype=torch.float64)[None, :, None] / n
        exact = 2 * torch.pi * torch.cos(2 * torch.pi * x)
        return float((central_difference(torch.sin(2 * torch.pi * x), 1 / n) - exact).abs().max())

    assert math.log2(error(64) / error(128)) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("loss", [RelativeH1, WeightedH1])
def test_negative_gamma_is_refused(loss):
    with pytest.raises(ValueError, match="gamma must be >= 0, got -1"):
        loss(gamma=-1)


@pytest.fixture
def plane():
    """Prediction, target and coefficient on 7 x 7 points."""
    rng = np.random.default_rng(1)
    p, u = (torch.from_numpy(rng.standard_normal((3, 7, 7, 1))) for _ in range(2))
    return p, u, torch.from_numpy(rng.choice([3.0, 12.0], size=(3, 7, 7, 1)))


def slopes(v):
    """Central differences along both axes, of values that are 0 outside; shape (2, n, m)."""
    n, m = v.shape
    filled = np.zeros((n + 2, m + 2))
    filled[1:-1, 1:-1] = v
    first = filled[2:, 1:-1] - filled[:-2, 1:-1]
    return np.stack([first, filled[1:-1, 2:] - filled[1:-1, :-2]]) * n / 2


def dense_weighted_h1(p, u, a, gamma, published):
    """The published term has a² on the inner points above, a on all points below."""
    total, inner = 0.0, np.s_[:, 1:-1, 1:-1]
    for one, target, coefficient in zip(*(v[..., 0].numpy() for v in (p, u, a)), strict=True):
        n, m = target.shape
        error = slopes(one - target)
        if published:
            upper = ((coefficient * error) ** 2)[inner].sum() / (2 * (n - 2) * (m - 2))
            lower = 2 * (coefficient * slopes(target) ** 2).sum() / (2 * n * m) + 1e-10
        else:
            upper, lower = ((coefficient * v**2)[inner].sum() for v in (error, slopes(target)))
        total += math.sqrt(((one - target) ** 2).sum() / (target**2).sum())
        total += math.sqrt(gamma / n * upper / lower)
    return total / len(p)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 0.1, 0.0])
@pytest.mark.parametrize("columns", [7, 5])
def test_weighted_h1_loss_is_the_formula_written_out(plane, published, gamma, columns):
    cut = [v[:, :, :columns] for v in plane]
    expected = dense_weighted_h1(*cut, gamma, published)
    assert float(WeightedH1(gamma, published)(*cut)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("published", [False, True])
def test_the_energy_norm_is_weighted_by_the_first_channel(plane, published):
    """Numbers of the sample come after it, such as its noise level."""
    p, u, a = plane
    loss, numbers = WeightedH1(0.5, published), torch.cat([a, torch.full_like(a, 0.3)], dim=-1)
    assert torch.equal(loss(p, u, numbers), loss(p, u, a))


def test_weighted_h1_term_is_the_relative_error_in_the_energy_norm(plane):
    """So it is 0.1 for p = 1.1 u whatever a is, which the published term is not."""
    _, u, a = plane
    expected = 0.1 * (1 + math.sqrt(0.5 / 7))
    for coefficient in (a, 5 * a, torch.ones_like(a)):
        loss = float(WeightedH1(0.5)(1.1 * u, u, coefficient))
        assert loss == pytest.approx(expected, rel=1e-12)
    published = WeightedH1(0.5, published=True)
    assert float(published(1.1 * u, u, 4 * a)) > 1.2 * float(published(1.1 * u, u, a))


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("offset", [None, 0.0, 1.0])
def test_gradient_of_the_weighted_h1_loss_is_finite(plane, published, offset):
    """Also where p = u, or only the slopes are equal: there the derivative term has a kink."""
    p, u, a = plane
    prediction = (p if offset is None else u + offset).requires_grad_()
    WeightedH1(published=published)(prediction, u, a).backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()
    assert offset == 0 or prediction.grad.all(dim=0).any()


@pytest.mark.parametrize("order", [1, 2, 3, 4, math.inf])
def test_an_error_of_any_order_weights_the_points_by_their_quadrature(order):
    """Points of weight 0 are padding; doubled points of half the weight change nothing."""
    random = np.random.default_rng(0)
    p, u, w = random.normal(size=(3, 7, 2)), random.normal(size=(3, 7, 2)), random.random(7)
    w[5:] = 0

    def norm(v):
        if order == math.inf:
            return abs(v[:, w > 0]).max(axis=(1, 2))
        return (w[:, None] * abs(v) ** order).sum(axis=(1, 2)) ** (1 / order)

    tensors = [torch.from_numpy(v) for v in (p, u, w)]
    found = relative_error(*tensors, order=order)[:, 0]
    np.testing.assert_allclose(found, norm(p - u) / norm(u), rtol=1e-12)
    doubled = [torch.from_numpy(np.repeat(v, 2, axis=v.ndim - 2)) for v in (p, u)]
    half = torch.from_numpy(np.repeat(w, 2) / 2)
    again = relative_error(*doubled, half, order=order)[:, 0]
    np.testing.assert_allclose(again, found, rtol=1e-12)


def test_losses_of_derivatives_refuse_domains_without_their_differences():
    RelativeH1().check(Box.periodic(8))
    WeightedH1().check(Box((CellGrid(85), CellGrid(43, length=0.50589))))  # rounded coordinates
    for spacing in (1, 2, 5):  # as the points of coarser grids are chosen
        WeightedH1().check(Box.cell(421, 421).every((spacing, spacing)))
    WeightedH1().check(Box((CellGrid(8), CellGrid(16, length=2.0))))
    bent = Curvilinear.of(Box.nodal(4, 4).points ** 2)
    for loss, domain, said in (
        (RelativeH1(), Box.periodic(8, 8), "the loss h1 needs 1 dimension, the data have 2"),
        (RelativeH1(), Curvilinear.of(Box.nodal(4).points), "needs a box, not a curvilinear"),
        (WeightedH1(), Box.cell(8), "the loss weighted-h1 needs 2 dimensions, the data have 1"),
        (WeightedH1(), bent, "needs a box, not a curvilinear"),
        (RelativeH1(), Box.nodal(8), "the loss h1 needs periodic axes, the data have nodal ones"),
        (RelativeH1(periodic=False), Box.cell(8), "needs periodic axes, the data have cell ones"),
        (WeightedH1(), Box.cell(8, 16), "needs the same spacing along both axes, got 0.125 and"),
    ):
        with pytest.raises(ValueError, match=said):
            loss.check(domain)


@pytest.mark.parametrize(("loss", "order"), [(RelativeL1, 1), (RelativeL2, 2)])
def test_losses_are_means_of_weighted_errors_over_the_batch(pair, loss, order):
    weight = torch.linspace(0.5, 2, 10, dtype=torch.float64)
    for w in (None, weight):
        powers = [
            (1 if w is None else w[:, None]) * v.abs() ** order
            for v in (pair[0] - pair[1], pair[1])
        ]
        error, size = (v.sum((1, 2)) ** (1 / order) for v in powers)
        found = loss()(*pair, torch.zeros(3, 10, 1), w)
        torch.testing.assert_close(found, (error / size).mean())


def test_spacings_may_differ_by_a_thousandth():
    for length, equal in ((1.0009, True), (1.0011, False), (0.9992, True), (0.9988, False)):
        assert has_one_spacing(Box((CellGrid(8), CellGrid(8, length)))) == equal


NAN = math.nan


def test_statistics_leave_out_errors_that_are_not_defined():
    errors = np.array([[0.4, NAN, NAN], [0.1, 0.3, NAN], [0.2, 0.6, NAN], [0.9, NAN, NAN]])
    np.testing.assert_allclose(by_column(np.median, errors), [0.3, 0.45, NAN])
    assert over_defined(min, [NAN, 0.3, 0.2]) == 0.2
    assert mean_defined(torch.tensor([0.5, NAN, 0.125])) == 0.3125
    assert math.isnan(mean_defined(torch.tensor([NAN])))
    assert undefined([7, 9, 12, 15], [NAN, 0.1, NAN, 0.0]) == [7, 12]
    assert rising([0.4, NAN, 0.1, math.inf, 0.1]) == [2, 4, 0, 3]


def left_out(text):
    return f"{text} have no relative error, because their target is 0. Means leave out "


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([0.1, 0.2, 0.3, 0.4], []),
        ([0.1, NAN, 0.3, NAN], [left_out("2 samples") + "21, 23"]),
        ([NAN, NAN, NAN, 0.1], [left_out("3 samples") + "20, 21, 22"]),
        ([NAN, NAN, 0.1, NAN, NAN], [left_out("4 samples") + "20, 21, 23, ..."]),
        ([0.1, 0.2, 0.3, 0.6], []),
        ([0.1, 0.2, 5.0], []),
        ([0.1, 0.2, math.inf, 0.3], []),
        (
            [NAN, 0.1, 0.2, 1.5, 0.2],
            [
                "Sample 20 has no relative error, because its target is 0. Means leave it out.",
                "Sample 23 has 75 % of the sum of the errors of 4 samples: its error is 1.5, the "
                "median is 0.2. The mean describes this sample alone; a target close to 0 makes a "
                "relative error large.",
            ],
        ),
        ([NAN] * 2, [left_out("2 samples") + "20, 21"]),
        ([], []),
    ],
)
def test_remarks_name_samples_without_an_error_and_one_that_has_most_of_the_sum(errors, said):
    assert remarks(range(20, 20 + len(errors)), errors) == said
