"""Optimisers against the formulas of their steps, and resumed trainings with each of them."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from operators.models.fno import FNO
from operators.norms import RelativeL2
from operators.registry import LOSSES, OPTIMIZERS, SCHEDULES
from operators.training.fit import Settings
from operators.training.losses import Huber
from operators.training.optimizers import SGD, Adam, AdamW, Muon, Soap
from operators.training.schedules import StepDecay
from operators.transforms import Normalizer, Predictor
from tests.operators.test_train import ends_alike, run

LR, STEPS = 0.02, 5
SHAPES = ((3, 5), (4,), (2, 3, 4), (6, 2))


def parameters():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(*shape, dtype=torch.float64)) for shape in SHAPES]


def gradients(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(*s, generator=generator, dtype=torch.float64) for s in SHAPES]


def after(make, steps=STEPS):
    """The parameters after some steps of an optimiser."""
    weights = parameters()
    optimizer = make(weights, LR)
    for step in range(steps):
        for weight, gradient in zip(weights, gradients(step), strict=True):
            weight.grad = gradient.clone()
        optimizer.step()
    return [weight.detach() for weight in weights]


def moved(step_of):
    """The parameters after `STEPS` steps W <- step_of(W, G, number, memory)."""
    weights, memories = [p.detach().clone() for p in parameters()], [{} for _ in SHAPES]
    for step in range(STEPS):
        weights = [
            step_of(w, g, step + 1, memory)
            for w, g, memory in zip(weights, gradients(step), memories, strict=True)
        ]
    return weights


def adam_step(w, g, number, memory):
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    v = memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g**2
    return w - LR * (m / (1 - 0.9**number)) / ((v / (1 - 0.999**number)).sqrt() + 1e-8)


def test_adam_adds_the_penalty_to_the_gradient():
    expected = moved(lambda w, g, n, memory: adam_step(w, g + 0.3 * w, n, memory))
    torch.testing.assert_close(after(Adam(0.3)), expected, rtol=1e-10, atol=1e-12)


def test_adamw_decays_weights_before_the_step():
    expected = moved(lambda w, g, n, memory: adam_step((1 - LR * 0.3) * w, g, n, memory))
    torch.testing.assert_close(after(AdamW(0.3)), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_its_formula(nesterov):
    def step(w, g, number, memory):
        g = g + 0.3 * w
        v = memory["v"] = 0.7 * memory["v"] + g if "v" in memory else g
        return w - LR * (g + 0.7 * v if nesterov else v)

    torch.testing.assert_close(after(SGD(0.7, nesterov, 0.3)), moved(step), rtol=1e-10, atol=1e-12)


def orthogonalised(g):
    """Five steps of the quintic iteration X <- aX + (b XXᵀ + c (XXᵀ)²) X in bfloat16."""
    x = g.bfloat16().T if g.shape[0] > g.shape[1] else g.bfloat16()
    x = x / x.norm()
    for _ in range(5):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def test_muon_orthogonalises_matrices_and_leaves_the_rest_to_adamw():
    def step(w, g, number, memory):
        if w.ndim != 2:
            return adam_step((1 - LR * 0.3) * w, g, number, memory)
        m = memory["m"] = 0.6 * memory.get("m", 0) + 0.4 * g
        direction = orthogonalised(0.4 * g + 0.6 * m)
        return (1 - LR * 0.3) * w - LR * 0.2 * max(w.shape) ** 0.5 * direction

    found, expected = after(Muon(0.6, 0.3)), moved(step)
    for w, v in zip(found, expected, strict=True):
        exact = w.ndim != 2
        # bfloat16 has three digits, and each step has the size LR
        rtol, atol = (1e-10, 1e-12) if exact else (0, 0.04 * STEPS * LR)
        torch.testing.assert_close(w, v, rtol=rtol, atol=atol)


def test_muon_moves_singular_values_towards_one():
    before, found = parameters(), after(Muon(0.0, 0.0), steps=1)
    for w, v in zip(before, found, strict=True):
        if w.ndim == 2:
            step = (w.detach() - v) / (LR * 0.2 * max(w.shape) ** 0.5)
            sizes = torch.linalg.svdvals(step)
            assert 0.5 < float(sizes.min()) <= float(sizes.max()) < 1.5


def test_the_settings_of_soap_reach_its_steps():
    matrix = torch.nn.Parameter(torch.ones(2, 2))
    (group,) = Soap(beta1=0.7, beta2=0.8, every=3)([matrix], LR).param_groups
    assert (group["lr"], group["betas"], group["every"]) == (LR, (0.7, 0.8), 3)


def test_muon_refuses_parameters_without_a_matrix():
    vector = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match="muon needs parameters that are real matrices"):
        Muon()([vector], LR)


def test_a_copy_of_muon_makes_the_same_steps():
    weights = parameters()
    optimizer = Muon()(weights, LR)
    for weight, gradient in zip(weights, gradients(0), strict=True):
        weight.grad = gradient.clone()
    optimizer.step()
    copied = deepcopy(optimizer)
    for each in (optimizer, copied):
        for group in each.param_groups:
            for weight, gradient in zip(group["params"], gradients(1), strict=False):
                weight.grad = gradient.reshape(-1)[0] * torch.ones_like(weight)
        each.step()
    for one, other in zip(optimizer.param_groups, copied.param_groups, strict=True):
        assert all(map(torch.equal, one["params"], other["params"]))


@pytest.mark.parametrize(
    ("optimizer", "wrong", "message"),
    [
        (Adam, {"weight_decay": -1.0}, "weight_decay must be >= 0, got -1.0"),
        (AdamW, {"weight_decay": -1.0}, "weight_decay must be >= 0, got -1.0"),
        (SGD, {"momentum": 1.0}, "need 0 <= momentum < 1, got 1.0"),
        (SGD, {"momentum": 0.0, "nesterov": True}, "nesterov needs momentum > 0"),
        (Muon, {"momentum": -0.5}, "need 0 <= momentum < 1, got -0.5"),
        (Soap, {"beta2": 1.0}, "need 0 <= beta1, beta2 < 1, got 0.95, 1.0"),
        (Soap, {"every": 0}, "every must be >= 1, got 0"),
    ],
)
def test_impossible_settings_are_refused(optimizer, wrong, message):
    with pytest.raises(ValueError, match=message):
        optimizer(**wrong)


def small():
    torch.manual_seed(0)
    operator = FNO(width=4, depth=1, modes=4, head_width=4)
    return Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))


SETTINGS = Settings(loss=RelativeL2(), epochs=3, batch=8, lr=3e-3, seed=3)
STEP = 6  # in the middle of the second of three epochs of four steps


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_resumes_to_the_same_bits(train_pairs, test_pairs, tmp_path, name):
    make = OPTIMIZERS[name]()
    cycled = getattr(make, "cycles_momentum", False)
    settings = replace(SETTINGS, optimizer=make, cycle_momentum=cycled)
    resumes(train_pairs, test_pairs, tmp_path, settings)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_every_schedule_resumes_to_the_same_bits(train_pairs, test_pairs, tmp_path, name):
    schedule = StepDecay(every=1) if name == "steps" else SCHEDULES[name]()
    resumes(train_pairs, test_pairs, tmp_path, replace(SETTINGS, schedule=schedule))


@pytest.mark.parametrize(
    "name", sorted(LOSSES.keys() - {"weighted-h1", "cross-entropy", "flow", "gaussian"})
)
def test_every_loss_of_a_line_resumes_to_the_same_bits(train_pairs, test_pairs, tmp_path, name):
    loss = Huber(0.01) if name == "huber" else LOSSES[name]()
    resumes(train_pairs, test_pairs, tmp_path, replace(SETTINGS, loss=loss))


def resumes(train, test, folder, settings):
    def train_once(to, **how):
        return run((train, test), to, settings, small, **how)

    ends_alike(train_once, folder, STEP, ("best", "last"))
