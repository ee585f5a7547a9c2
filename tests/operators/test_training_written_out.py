"""A whole training against a second one, in plain formulas.

Each setting has a value at which it acts and that is not its default: the clip is reached, the
average is young, the cycle is unsymmetric.
"""

import math

import numpy as np
import pytest
import torch

from operators.base import Operator
from operators.data import Channel, Samples
from operators.norms import RelativeL1
from operators.training.checkpoint import load_state
from operators.training.fit import Settings, fit
from operators.training.schedules import OneCycle
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box

POINTS, SAMPLES, BATCH, EPOCHS = 7, 11, 3, 4
LR, WARMUP, DIV, FINAL, CLIP, AVERAGE = 0.05, 0.4, 13.0, 7.0, 0.1, 0.5
INPUT, TARGET = (0.25, 1.75), (-0.25, 0.625)  # mean and deviation, exact in float32
FIRST = torch.tensor([[0.4, -0.9], [0.2, 0.5]], dtype=torch.float64)  # (weight, bias)


class Cubic(Operator):
    """u = w_1 a + b_1 + w_2 a³ + b_2."""

    dim, dims, in_channels, out_channels = 1, (1,), 1, 1

    def __init__(self):
        super().__init__()
        self.terms = torch.nn.Parameter(FIRST.clone())

    def forward(self, a, x, y=None, mask=None):
        return evaluated(self.terms, a)


def evaluated(terms, a):
    (w1, b1), (w2, b2) = terms
    return w1 * a + b1 + w2 * a**3 + b2


def samples(seed):
    torch.manual_seed(seed)
    a = torch.randn(SAMPLES, POINTS, 1, dtype=torch.float64)
    return Samples.of(
        a=a, u=0.3 * a**3 + a.abs() + 0.5, x=torch.linspace(0, 1, POINTS)[:, None].double(),
        y=None, samples=np.arange(SAMPLES), domain=Box.nodal(POINTS),
        source={"url": "here", "target": "u"}, target_channels=(Channel("u"),), per_sample={},
    )  # fmt: skip


def predicted(terms, a):
    return evaluated(terms, (a - INPUT[0]) / INPUT[1]) * TARGET[1] + TARGET[0]


def cosine(start, end, share):
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def between(step, steps, low, high, last):
    """A cycle low -> high -> last over the steps, its peak at WARMUP of them."""
    peak = WARMUP * steps - 1
    if step <= peak:
        return cosine(low, high, step / peak)
    return cosine(high, last, (step - peak) / (steps - 1 - peak))


def written_out(train, selection):
    """(terms, averaged terms, (loss, score) of each epoch)."""
    terms, averaged = FIRST.clone(), FIRST.clone()
    mean, square = torch.zeros_like(terms), torch.zeros_like(terms)
    steps, step, recorded = SAMPLES // BATCH * EPOCHS, 0, []
    for epoch in range(EPOCHS):
        losses = []
        for batch in train.batches(5, epoch, BATCH):
            variable = terms.clone().requires_grad_()
            error = (predicted(variable, batch.a) - batch.u).abs().sum((1, 2))
            loss = (error / batch.u.abs().sum((1, 2))).mean()
            (gradient,) = torch.autograd.grad(loss, variable)
            size = float(gradient.norm())
            assert size > CLIP or epoch, "the clip acts in the first epoch"
            gradient = gradient * min(1.0, CLIP / (size + 1e-6))  # as PyTorch clips
            rate = between(step, steps, LR / DIV, LR, LR / DIV / FINAL)
            beta = between(step, steps, 0.95, 0.85, 0.95)
            step += 1
            mean = beta * mean + (1 - beta) * gradient
            square = 0.999 * square + 0.001 * gradient**2
            corrected = mean / (1 - beta**step)
            terms = terms - rate * corrected / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
            decay = min(AVERAGE, (1 + step) / (10 + step))
            averaged = decay * averaged + (1 - decay) * terms
            losses.append(float(loss.detach()))
        errors = (predicted(averaged, selection.a) - selection.u).flatten(1).norm(dim=1)
        score = float((errors / selection.u.flatten(1).norm(dim=1)).mean())
        recorded.append((sum(losses) / len(losses), score))
    return terms, averaged, recorded


def test_a_training_is_what_its_settings_say(tmp_path):
    train, selection = samples(1), samples(2)
    normalizers = (Normalizer(torch.tensor([m]), torch.tensor([s])) for m, s in (INPUT, TARGET))
    model = Predictor(Cubic(), *normalizers).double()
    settings = Settings(
        loss=RelativeL1(), epochs=EPOCHS, batch=BATCH, lr=LR,
        schedule=OneCycle(WARMUP, DIV, FINAL), clip=CLIP, seed=5, average=AVERAGE,
    )  # fmt: skip
    history = fit(model, train, selection, settings, tmp_path, {"operator": {}})
    terms, averaged, recorded = written_out(train, selection)
    torch.testing.assert_close(model.operator.terms.detach(), terms, rtol=1e-9, atol=1e-12)
    state = load_state(tmp_path / "state.pt", torch.device("cpu"))["averaged"]
    torch.testing.assert_close(state["operator.terms"], averaged, rtol=1e-9, atol=1e-12)
    found = [(epoch.loss, epoch.score) for epoch in history]
    assert found == [pytest.approx(epoch, rel=1e-6) for epoch in recorded]  # sums in float32
    assert not torch.allclose(averaged, terms, rtol=1e-3)
