"""Losses that are no relative errors, against their formulas in NumPy."""

import numpy as np
import pytest
import torch

from operators.training.losses import CrossEntropy, GaussianLikelihood, Huber, MeanSquare, SquaredH1
from pdegen.domains import Box, Curvilinear, PeriodicGrid

DELTA, GAMMA = 0.7, 0.3


def functions(*shape):
    """Prediction, target and input, in float64."""
    generator = torch.Generator().manual_seed(len(shape))
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(3)]


def huber(e):
    return np.where(np.abs(e) <= DELTA, e**2 / 2, DELTA * (np.abs(e) - DELTA / 2))


ON_POINTS = [(MeanSquare(), np.square), (Huber(DELTA), huber)]


@pytest.mark.parametrize("weight", [None, torch.arange(1.0, 8.0, dtype=torch.float64)])
def test_the_cross_entropy_is_that_of_the_probability(weight):
    z, s, a = functions(3, 7, 1)
    p, s = z.sigmoid().numpy()[..., 0], s.sigmoid()
    true = s.numpy()[..., 0]
    by_point = -true * np.log(p) - (1 - true) * np.log(1 - p)
    expected = np.average(by_point, axis=1, weights=weight).mean()
    loss = CrossEntropy()(z, s, a, *(() if weight is None else (weight,)))
    assert float(loss) == pytest.approx(expected, rel=1e-12)


def test_the_cross_entropy_of_wrong_certain_logits_has_a_gradient():
    z = torch.tensor([[[100.0]]], requires_grad=True)  # its probability rounds to 1
    CrossEntropy()(z, torch.zeros(1, 1, 1), z).backward()
    assert z.grad is not None
    assert float(z.grad) == 1.0


@pytest.mark.parametrize("weight", [None, torch.arange(1.0, 8.0, dtype=torch.float64)])
def test_the_gaussian_loss_and_its_gradient_are_those_of_beta_half(weight):
    m, u, a = functions(3, 7, 2)
    log = 0.5 * a
    prediction = torch.cat([m, log], dim=-1).requires_grad_()
    loss = GaussianLikelihood()(prediction, u, a, *(() if weight is None else (weight,)))
    s, share = log.exp().numpy(), np.full(7, 1 / 7) if weight is None else weight / weight.sum()
    z = ((m - u) / log.exp()).numpy()
    expected = (s * (z**2 / 2 + np.log(s))).mean(axis=-1) @ np.asarray(share)
    assert float(loss.detach()) == pytest.approx(expected.mean(), rel=1e-12)
    loss.backward()
    assert prediction.grad is not None
    # the factor s has no derivative: z for m, and s (1 - z²) for log s
    slopes = np.concatenate([z, s * (1 - z**2)], axis=-1) * np.asarray(share)[:, None] / 6
    assert prediction.grad.numpy() == pytest.approx(slopes, rel=1e-12)


@pytest.mark.parametrize(("loss", "formula"), ON_POINTS)
@pytest.mark.parametrize("shape", [(3, 7, 2), (3, 4, 5, 1)])
def test_a_loss_on_points_is_a_mean(loss, formula, shape):
    p, u, a = functions(*shape)
    expected = formula((p - u).numpy()).mean()
    assert float(loss(p, u, a)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("loss", "formula"), ON_POINTS)
def test_points_have_their_quadrature_weights(loss, formula):
    """Shared by the samples, or of each sample; the size of the weights cancels."""
    p, u, a = functions(3, 7, 2)
    shared = torch.arange(1.0, 8.0, dtype=torch.float64)
    own = shared * torch.tensor([[1.0], [2.0], [5.0]], dtype=torch.float64)
    by_point = formula((p - u).numpy()).mean(-1)
    expected = (by_point * shared.numpy()).sum(1).mean() / 28
    assert float(loss(p, u, a, shared)) == pytest.approx(expected, rel=1e-12)
    assert float(loss(p, u, a, own)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("loss", "formula"), ON_POINTS)
def test_padding_does_not_count(loss, formula):
    p, u, a = functions(2, 6, 1)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]], dtype=torch.float64)
    full, short = (float(loss(p[i : i + 1, :n], u[i : i + 1, :n], a)) for i, n in ((0, 6), (1, 3)))
    assert float(loss(p, u, a, mask)) == pytest.approx((full + short) / 2, rel=1e-12)


def test_the_huber_loss_is_quadratic_and_then_linear():
    u = torch.zeros(1, 1, 1)
    assert float(Huber(2.0)(u + 1.0, u, u)) == 0.5
    assert float(Huber(2.0)(u - 10.0, u, u)) == 2.0 * 9.0


@pytest.mark.parametrize("weighted", [False, True])
def test_the_printed_loss_on_a_line(weighted):
    p, u, a = functions(3, 8, 1)
    e, k, n = (p - u).numpy()[..., 0], a.numpy()[..., 0] if weighted else np.ones((3, 8)), 8
    inner = k[:, 1:-1] * (e[:, 2:] - e[:, :-2]) * n / 2
    expected = (e**2).mean() + GAMMA / n * (inner**2).mean()
    assert float(SquaredH1(GAMMA, weighted)(p, u, a)) == pytest.approx(expected, rel=1e-12)
    around = k * (np.roll(e, -1, 1) - np.roll(e, 1, 1)) * n / 2
    expected = (e**2).mean() + GAMMA / n * (around**2).mean()
    found = SquaredH1(GAMMA, weighted, periodic=True)(p, u, a)
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_the_printed_loss_on_a_plane():
    p, u, a = functions(2, 6, 5, 1)
    e, k = ((p - u).numpy()[..., 0], a.numpy()[..., 0])
    inner = k[:, 1:-1, 1:-1]
    x = inner * (e[:, 2:, 1:-1] - e[:, :-2, 1:-1]) * 3.0
    y = inner * (e[:, 1:-1, 2:] - e[:, 1:-1, :-2]) * 2.5
    expected = (e**2).mean() + GAMMA / 6 * ((x**2).mean() + (y**2).mean())
    found = SquaredH1(GAMMA, weighted=True)(p, u, a)
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_the_printed_loss_converges_to_the_norms():
    """u = 0, p = sin 2πx: ‖p‖² = 1/2 and ‖p'‖² = 2π², with γh and second order."""
    errors = []
    for n in (32, 64):
        x = (torch.arange(n, dtype=torch.float64) / n)[None, :, None]
        p = torch.sin(2 * torch.pi * x)
        slope = n / GAMMA * (float(SquaredH1(GAMMA, periodic=True)(p, 0 * p, p)) - 0.5)
        errors.append(abs(slope - 2 * np.pi**2))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


def test_impossible_settings_and_domains_are_refused():
    with pytest.raises(ValueError, match="delta must be > 0, got 0"):
        Huber(0.0)
    with pytest.raises(ValueError, match="gamma must be >= 0, got -1"):
        SquaredH1(-1.0)
    mesh = Curvilinear.of(Box.nodal(4, 4).points ** 2)
    with pytest.raises(ValueError, match="the loss squared-h1 needs a box, not a curvilinear"):
        SquaredH1().check(mesh)
    with pytest.raises(
        ValueError, match=r"squared-h1 needs a box with sides of length 1.*not 1, 32"
    ):
        SquaredH1().check(Box((PeriodicGrid(4), PeriodicGrid(4, 32.0))))
    SquaredH1().check(Box.cell(4, 4))
    SquaredH1().check(Box.cell(421, 421).every((5, 5)))  # 85 cells of 5/421, as published
    SquaredH1(periodic=True).check(Box.periodic(4, 4))
    with pytest.raises(ValueError, match=r"periodic = true needs periodic axes.* have cell ones"):
        SquaredH1(periodic=True).check(Box.cell(4, 4))
