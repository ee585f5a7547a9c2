"""Flows: draws of Gaussian posteriors whose velocity is known, and their random numbers."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from operators.api import TrainedModel
from operators.base import Operator
from operators.data import Samples
from operators.models.fno import FNO
from operators.posterior import FlowPosterior, cosine_coefficients
from operators.training.checkpoint import load_checkpoint, saving_checkpoint
from operators.training.fit import Settings, fit, start_from
from operators.training.losses import FlowMatching
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box

N, S = 16, 0.3  # points; deviation of the posterior
SOURCE = math.sqrt(1.01)  # deviation of x₀ if the spectrum is white with variance 1
X = torch.as_tensor(Box.periodic(N).points.astype(np.float32))


class Exact(Operator):
    """The velocity of the law N(2a, S²) at each point, for x₀ of the law N(0, c²):

    v = m + (t S² - (1 - t) c²)/((1 - t)² c² + t² S²) (x - t m) with m = 2a.
    """

    dim, in_channels, out_channels = 1, 3, 1

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, a, x, y=None, mask=None):
        state, data, t = a.split(1, -1)
        m, c2 = 2 * data * self.scale, SOURCE**2
        slope = (t * S**2 - (1 - t) * c2) / ((1 - t) ** 2 * c2 + t**2 * S**2)
        return m + slope * (state - t * m)


def white() -> torch.Tensor:
    return torch.full((N, 1), math.sqrt(1 / N))


def exact(steps: int = 10, members: int = 32) -> FlowPosterior:
    one = Normalizer.identity(1)
    return FlowPosterior(Exact(), one, one, white(), members=members, steps=steps).eval()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_draws_by_the_exact_velocity_converge_with_order_two() -> None:
    a = random(1, N, 1)
    x0 = exact().at(X).source([(0, 0, 7, k) for k in range(16)])
    true = 2 * a + S / SOURCE * x0  # the flow of a Gaussian law is affine
    errors = [
        float((exact(steps).draw(a, X, None, [7], 16)[:, 0] - true).square().mean().sqrt())
        for steps in (10, 20, 40)
    ]
    assert errors[0] < 0.02  # 7 % of S
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders == pytest.approx([2, 2], abs=0.25)  # Heun's method


def test_draws_have_the_mean_and_the_deviation_of_the_posterior() -> None:
    a = random(2, N, 1)
    draws = exact(20).draw(a, X, None, [0, 1], 640)
    # 640 x 16 independent values: standard errors of S/101 and S/143
    assert float((draws - 2 * a).mean().abs()) < 4 * S / 143
    assert float((draws - 2 * a).std()) == pytest.approx(S, rel=0.04)


def test_the_loss_at_the_exact_velocity_is_the_least_one() -> None:
    a = random(400, N, 1)
    u = 2 * a + S * torch.randn(a.shape, generator=torch.Generator().manual_seed(2))
    pairs = Samples.of(
        a=a, u=u, samples=np.arange(400), x=X, y=None, domain=Box.periodic(N), source={}
    )
    flow = exact()
    # mean over t of c² S²/((1 - t)² c² + t² S²), the variance of x₁ - x₀ given x_t and a
    t = (torch.arange(8) + 0.5) / 8
    least = float((SOURCE**2 * S**2 / ((1 - t) ** 2 * SOURCE**2 + t**2 * S**2)).mean())
    assert least == pytest.approx(SOURCE * S * math.pi / 2, rel=0.01)  # its integral
    # 51,200 products of normals with deviations of up to S√2 times the mean: 0.7 % of error
    assert float(flow.losses(pairs).mean()) == pytest.approx(least, rel=0.03)
    with torch.no_grad():
        next(flow.operator.parameters()).fill_(1.1)  # of the mean 2a
    assert float(flow.losses(pairs).mean()) > 1.03 * least


@pytest.fixture
def network() -> FlowPosterior:
    torch.manual_seed(0)
    operator = FNO(in_channels=4, out_channels=1, dim=2, width=6, modes=2, depth=2, head_width=8)
    input, target = (Normalizer(torch.zeros(n), 2 * torch.ones(n)) for n in (2, 1))
    return FlowPosterior(operator, input, target, random(6, 6, 1), members=5, steps=2).eval()


PLANE, COARSE = (torch.as_tensor(Box.cell(n, n).points.astype(np.float32)) for n in (6, 3))


@pytest.mark.parametrize("x", [PLANE, COARSE])
def test_a_draw_is_a_function_of_seed_sample_and_member(network: FlowPosterior, x) -> None:
    a, y = random(3, *x.shape[:2], 2), None if x is PLANE else PLANE
    every = network.draw(a, x, y, [3, 4, 9], 20)
    assert every.shape == (20, 3, 6, 6, 1)
    assert torch.equal(network.draw(a[[2, 0]], x, y, [9, 3], 3), every[:3, [2, 0]])
    assert not torch.equal(network.draw(a, x, y, [3, 4, 9], 20, seed=1), every)
    same = network.draw(a[:1].expand(3, -1, -1, -1), x, y, [3, 4, 9], 2)
    assert not torch.equal(same[:, 0], same[:, 1])
    assert not torch.equal(same[0], same[1])


def test_a_prediction_is_the_mean_of_draws_whatever_the_batch(network: FlowPosterior) -> None:
    a = random(2, 6, 6, 2)
    model = TrainedModel(network, {})
    draws = model.draw(a, samples=[0, 0], x=PLANE)
    torch.testing.assert_close(model.predict(a, PLANE), draws.mean(0))
    assert torch.equal(model.predict(a[1:], PLANE), model.predict(a, PLANE)[1:])
    assert isinstance(model.draw(a.numpy(), 1, x=PLANE.numpy()), np.ndarray)


def test_only_flows_draw() -> None:
    one = Normalizer.identity(1)
    model = TrainedModel(Predictor(FNO(modes=2), one, one), {})
    with pytest.raises(ValueError, match="draws need a model that was trained by the loss flow"):
        model.draw(random(1, N, 1), x=X)


def test_a_flow_draws_the_same_after_it_is_loaded(network: FlowPosterior, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    saving_checkpoint(path, network, {"operator": {}})()
    loaded, _ = load_checkpoint(
        path, lambda _: FNO(in_channels=4, out_channels=1, dim=2, width=6, modes=2, depth=2,
                            head_width=8)
    )  # fmt: skip
    assert isinstance(loaded, FlowPosterior)
    assert (loaded.members, loaded.steps, loaded.in_channels) == (5, 2, 2)
    a = random(1, 6, 6, 2)
    assert torch.equal(loaded.draw(a, PLANE, None, [0], 2), network.draw(a, PLANE, None, [0], 2))
    assert start_from(loaded.operator, path)["anew"] == []


def test_the_source_has_the_spectrum_of_the_targets(network: FlowPosterior) -> None:
    u = random(50, 6, 6, 1).cumsum(1)
    pairs = Samples.of(a=u, u=u, samples=np.arange(50), x=PLANE, y=None, domain=Box.cell(6, 6),
                       source={})  # fmt: skip
    network.adapt(pairs)
    total = float((u / 2).square().mean())  # Parseval
    assert float(network.spectrum.square().sum()) == pytest.approx(total, rel=1e-5)
    x0 = network.at(PLANE).source([(0, k) for k in range(2000)])
    # a white part of variance 0.01 at 36 points has 0.01/36 in each mode
    expected = (network.spectrum.square() + 0.01 / 36).sqrt()
    modes = cosine_coefficients(x0).square().mean(0).sqrt()
    torch.testing.assert_close(modes, expected, rtol=0.07, atol=0)  # 4.4 standard errors


def test_a_finer_grid_draws_the_same_field(network: FlowPosterior) -> None:
    fine = torch.as_tensor(Box.cell(18, 18).points.astype(np.float32))
    modes = random(1, 6, 6, 1)
    coarse, finer = (
        network.at(x).field(modes, torch.zeros(1, *x.shape[:2], 1)) for x in (PLANE, fine)
    )
    torch.testing.assert_close(finer[:, 1::3, 1::3], coarse)  # the same points


@pytest.mark.parametrize("points", [None, torch.rand(7, 2)])
def test_points_that_are_no_grid_are_refused(network: FlowPosterior, points) -> None:
    with pytest.raises(ValueError, match="the loss flow needs points of a grid that all samples"):
        network.at(points)


def test_a_training_learns_a_gaussian_posterior(tmp_path: Path) -> None:
    """u is constant with the law N(0, 1), a = u + ε with ε of the law N(0, 1/4): the posterior has
    the mean 0.8 a and the variance 0.2."""
    u = random(512, 1, 1).expand(-1, N, -1).contiguous()
    noise = torch.randn((512, 1, 1), generator=torch.Generator().manual_seed(3))
    of = {"x": X, "y": None, "domain": Box.periodic(N), "source": {}}
    pairs = Samples.of(a=u + 0.5 * noise, u=u, samples=np.arange(512), **of)
    torch.manual_seed(0)
    operator = FNO(in_channels=3, out_channels=1, dim=1, width=24, modes=2, depth=2)
    input, target = Normalizer.identity(1), Normalizer.identity(1)
    flow = FlowPosterior(operator, input, target, torch.zeros(N, 1))
    flow.adapt(pairs)
    settings = Settings(FlowMatching(), epochs=20, batch=32, lr=5e-3, average=0.98)
    description = {"operator": {"model": {"name": "fno"}}}
    history = fit(flow, pairs, pairs.rows(slice(64)), settings, tmp_path, description)
    assert history[-1].score < 0.7 * history[0].score
    trained, _ = load_checkpoint(tmp_path / "best.safetensors", lambda _: operator)
    assert isinstance(trained, FlowPosterior)
    a = torch.tensor([-1.0, 0.0, 1.0])[:, None, None].expand(-1, N, -1)
    draws = trained.draw(a, X, None, [0, 1, 2], 128).mean(dim=(2, 3))
    # 320 steps of a small network, whose errors exceed those of 128 draws
    assert draws.mean(0).tolist() == pytest.approx([-0.8, 0.0, 0.8], abs=0.15)
    assert draws.std(0).tolist() == pytest.approx([math.sqrt(0.2)] * 3, abs=0.12)
