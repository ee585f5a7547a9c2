"""Costs of training steps."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from operators.nn import encoder
from operators.training.step import AS_WRITTEN
from pipelines.config.declared import parse_model
from pipelines.config.experiment import load_experiment
from pipelines.studies import cost
from pipelines.studies.cost import Cost, random_pairs, step_flops
from tests.pipelines.conftest import CPU


@pytest.mark.parametrize("attention", ["galerkin", "softmax", "none"])
@pytest.mark.parametrize("normalization", ["head", "layer"])
def test_operations_written_out_are_those_of_the_formula(monkeypatch, attention, normalization):
    """Where gradients are written out for the processor, products add to their results."""
    settings = {"attention": attention, "normalization": normalization, "width": 32, "modes": 8}
    model = parse_model({"name": "galerkin-transformer", **settings}).build(1, 1, 1).train()
    x, a = torch.arange(64)[:, None] / 64, torch.randn(4, 64, 1)

    def step():
        model(a, x).square().mean().backward()

    fast = step_flops(step)
    for module in (encoder, encoder):
        monkeypatch.setattr(module, "on_processor", lambda u: False)
    # written out, the products with the one or two coordinates are left to sums
    assert fast == pytest.approx(step_flops(step), rel=0.02)


def test_products_that_add_to_their_result_are_counted():
    a, b, c = torch.ones(2, 3), torch.ones(3, 4), torch.zeros(2, 4)
    assert step_flops(lambda: c.addmm_(a, b)) == 2 * 2 * 3 * 4
    a, b, c = torch.ones(5, 2, 3), torch.ones(5, 3, 4), torch.zeros(5, 2, 4)
    assert step_flops(lambda: c.baddbmm_(a, b)) == 5 * 2 * 2 * 3 * 4


def test_products_that_a_relu_follows_are_counted():
    """They are a single kernel of GPUs; the device meta has their shapes only."""
    mlp = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)).to("meta")
    u = torch.ones(5, 16, 8, device="meta", requires_grad=True)
    step = step_flops(lambda: encoder.residual_mlp(u, mlp).sum().backward())
    assert step == 3 * 2 * (2 * 5 * 16 * 8 * 32)


def test_complex_products_count_as_four_real_ones():
    a, b = torch.ones(5, 2, 3, dtype=torch.cfloat), torch.ones(5, 3, 4, dtype=torch.cfloat)
    assert step_flops(lambda: a @ b) == 4 * step_flops(lambda: a.real @ b.real)
    assert step_flops(lambda: a[0] @ b[0]) == 4 * (2 * 2 * 3 * 4)
    c = torch.zeros(5, 2, 4, dtype=torch.cfloat)
    assert step_flops(lambda: torch.addmm(c[0], a[0], b[0])) == 4 * (2 * 2 * 3 * 4)
    assert step_flops(lambda: torch.baddbmm(c, a, b)) == 4 * (5 * 2 * 2 * 3 * 4)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_that_are_operations_of_this_package_are_counted(transposed):
    """Where a GPU has them, or autocast; with their gradients, each as much as the product."""
    f, g = torch.ones(5, 2, 3, requires_grad=True), torch.ones(5, 3, 4, requires_grad=True)
    step = step_flops(lambda: torch.ops.operators.exact_bmm(f, g).sum().backward())
    assert step == 3 * (5 * 2 * 2 * 3 * 4)
    u = torch.ones(5, 8 if transposed else 16, 3, requires_grad=True)  # 4 modes of 16 points
    words = "spectrum", 16, 4, transposed
    step = step_flops(lambda: torch.ops.operators.transformed(u, *words).sum().backward())
    assert step == 2 * (5 * 2 * 8 * 16 * 3)


def test_random_functions_have_the_variables_of_the_task():
    experiment = load_experiment("pipe-transolver").with_overrides(
        {"task.targets": ["u", "v", "p"]}
    )
    assert random_pairs(experiment, torch.device("cpu")).channels == (2, 3)


def test_random_functions_fill_two_batches_of_the_scaled_grid():
    experiment = load_experiment("darcy-quick").with_overrides(
        {"data.resolution": 21, "training.batch": 3}
    )
    problem = experiment.data.load_recipe().problem
    pairs = random_pairs(experiment, CPU)
    n = round(problem.domain.shape[1] * 21 / problem.domain.shape[0])
    assert pairs.all.a.shape == pairs.all.u.shape == (6, 21, n, 1)
    assert pairs.points.shape == (21, n, 2)
    np.testing.assert_allclose(pairs.points, pairs.domain.points, rtol=1e-6)
    assert 1 <= pairs.all.a.min() < 1.1
    assert 1.9 < pairs.all.a.max() <= 2
    assert pairs.all.u.min() < -1
    assert pairs.all.u.std() == pytest.approx(1, abs=0.1)
    assert pairs.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert pairs.source == {"url": "random functions"}


def test_random_points_move_where_those_of_the_samples_do():
    pairs = random_pairs(load_experiment("elasticity-transolver"), CPU)
    assert pairs.x is None
    places, weight = pairs.all.per_sample["x"], pairs.all.per_sample["weight"]
    assert places.shape == (*pairs.all.u.shape[:-1], 2)
    assert places.std() > 0.2
    assert torch.equal(weight, torch.ones(pairs.all.u.shape[:-1]))


class Steady:
    """A clock of which each step takes the next of some durations."""

    def __init__(self, monkeypatch, durations):
        self.now, self.durations, self.steps = 0.0, iter(durations), 0
        monkeypatch.setattr(cost, "clock_of", lambda device: lambda: self.now)

    def step(self):
        self.steps += 1
        self.now += next(self.durations)


@pytest.mark.parametrize(
    ("durations", "median", "steps"),
    [
        ([50.0, 40.0, 1.0, 0.5, 3.0, 0.7, 9.0], 1.0, 7),  # five are timed, however long
        ([50.0, 40.0, *[0.005 * k for k in range(1, 26)]], 0.065, 27),  # at most 25
        ([0.0, 0.0, *[0.25] * 30], 0.25, 10),  # until two seconds are over
    ],
)
def test_the_median_of_warm_steps_is_their_time(monkeypatch, durations, median, steps):
    clock = Steady(monkeypatch, durations)
    assert cost.step_seconds(clock.step, CPU) == pytest.approx(median)
    assert clock.steps == steps


def test_a_cost_has_the_time_the_peak_and_the_operations_of_the_step(monkeypatch):
    given = {"seconds": [], "flops": [], "peak": []}
    returned = {"seconds": 1.5, "flops": 300, "peak": 20}

    def record(what):
        return lambda *args: (given[what].append(args), returned[what])[1]

    monkeypatch.setattr(cost, "step_seconds", record("seconds"))
    monkeypatch.setattr(cost, "step_flops", record("flops"))
    monkeypatch.setattr(cost, "peak_bytes", record("peak"))
    words = "step", "model", "optimizer", CPU
    assert cost.step_cost(*words) == Cost(1.5, 20, 300)
    assert given == {
        "seconds": [("step", CPU)], "flops": [("step",)],
        "peak": [("model", "optimizer", "step", CPU)],
    }  # fmt: skip


def test_the_peak_is_of_all_tensors_during_the_step():
    model = nn.Linear(1000, 3)
    optimizer = torch.optim.Adam(model.parameters())
    peak = {
        n: cost.peak_bytes(model, optimizer, lambda n=n: model(torch.ones(n, 1000)), CPU)
        for n in (1000, 3000)
    }
    assert peak[3000] - peak[1000] == pytest.approx(2000 * 1003 * 4, rel=1e-2)


def test_components_and_times_are_channels():
    shapes = {("x",): 1, ("time", "x"): 4, ("time", "channel", "x"): 12}
    sizes = {"time": 4, "channel": 3, "x": 50}
    for dims, channels in shapes.items():
        variable = SimpleNamespace(dims=dims, shape=tuple(sizes[dim] for dim in dims))
        assert cost._channels(variable) == channels


@pytest.fixture
def small():
    return load_experiment("burgers-quick").with_overrides({
        "data.resolution": 16, "resolutions": [16], "model.width": 8, "model.depth": 1,
        "model.modes": 4, "training.batch": 2, "training.lr": 0.01, "training.clip": 0.5,
        "normalization": {"input": "scalar", "target": "pointwise"},
    })  # fmt: skip


def test_steps_are_those_of_a_training(small, monkeypatch):
    pairs = random_pairs(small, CPU)
    batch, seeds = next(pairs.in_order(2)), []
    steps = cost.Steps(small, pairs, AS_WRITTEN)
    assert steps.predictor.training
    for ours, expected in zip(
        (steps.predictor.input, steps.predictor.target), small.normalization.of(pairs), strict=True
    ):
        torch.testing.assert_close(ours.state_dict(), expected.state_dict())
    gradient = steps.gradient
    steps.gradient = lambda batch, seed: (seeds.append(seed), gradient(batch, seed))[1]
    before = [weights.clone() for weights in steps.predictor.parameters()]
    rates = []
    for _ in range(3):
        loss = steps(batch)
        rates.append(steps.optimizer.param_groups[0]["lr"])
    assert loss.isfinite()
    assert seeds == [0, 1, 2]
    assert len(set(rates)) == 3
    assert all(
        not torch.equal(one, other)
        for one, other in zip(before, steps.predictor.parameters(), strict=True)
    )


def test_a_step_has_the_loss_the_clipping_and_the_weights_of_the_experiment(small, monkeypatch):
    made = []

    class Recorded(cost.Step):
        def __init__(self, *args, **words):
            made.append((args, words))
            super().__init__(*args, **words)

    monkeypatch.setattr(cost, "Step", Recorded)
    pairs = random_pairs(small, CPU)
    steps = cost.Steps(small, pairs, AS_WRITTEN)
    (args, words), settings = made[0], small.training.settings()
    assert args[0] is steps.predictor
    assert args[1] is pairs.x
    assert args[2] is pairs.y
    assert type(args[3]) is type(settings.loss)
    assert (args[4], vars(args[5]), args[6]) == (0.5, vars(settings.augment), AS_WRITTEN)
    assert words["weight"] is pairs.weight
    assert steps.predictor.task == small.learned
