"""Learning rate curves against their formulas and PyTorch's schedulers."""

import math

import pytest
import torch

from operators.training.schedules import Constant, Cosine, OneCycle, Scheduled, StepDecay

LR, STEPS, EPOCHS = 3e-3, 60, 12


def an_optimizer(**settings):
    return torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=LR, **settings)


def rates(schedule, steps=STEPS, epochs=EPOCHS):
    return [schedule(LR, step, steps, epochs) for step in range(steps + 1)]


def of_torch(make, steps=STEPS, every=1):
    """Rates of a scheduler of PyTorch that is advanced after each step, or each epoch."""
    optimizer = an_optimizer()
    scheduler, seen = make(optimizer), []
    for step in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step()
    return seen


@pytest.mark.parametrize(
    ("warmup", "div", "final_div", "steps"),
    [(0.3, 1e4, 1e4, 57), (0.05, 25.0, 1.0, 40), (0.01, 3.0, 7.0, 50), (0.5, 13.0, 1e4, 8)],
)
def test_one_cycle_has_the_bits_of_pytorch(warmup, div, final_div, steps):
    """Rates and momentum, also where the rise is shorter than a step."""
    ours, theirs = an_optimizer(), an_optimizer()
    scheduled = Scheduled(ours, OneCycle(warmup, div, final_div), steps, 1, cycle_momentum=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        theirs, LR, total_steps=steps, pct_start=warmup, div_factor=div, final_div_factor=final_div
    )
    for _ in range(steps):
        assert ours.param_groups[0]["lr"] == theirs.param_groups[0]["lr"] == scheduled.rate
        assert ours.param_groups[0]["betas"] == theirs.param_groups[0]["betas"]
        theirs.step()
        scheduler.step()
        scheduled.step()


def test_cosine_is_that_of_pytorch_after_a_linear_rise():
    plain = of_torch(
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, 0.1 * LR)
    )
    assert rates(Cosine(warmup=0.0, end=0.1))[:-1] == pytest.approx(plain, rel=1e-9)
    found = rates(Cosine(warmup=0.25, end=0.1))
    rise = 15
    for step, rate in enumerate(found):
        part = (step - rise) / (STEPS - rise)
        fall = LR * (0.1 + 0.9 * (1 + math.cos(math.pi * part)) / 2)
        assert rate == pytest.approx(LR * (step + 1) / 16 if step < rise else fall, rel=1e-12)
    assert max(found) == found[rise] == pytest.approx(LR, rel=1e-15)
    assert found[-1] == pytest.approx(0.1 * LR)


def test_steps_are_those_of_pytorch_by_epochs():
    halved = of_torch(
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5), every=STEPS // EPOCHS
    )
    assert rates(StepDecay(factor=0.5, every=4))[:-1] == pytest.approx(halved, rel=1e-12)
    assert [rates(StepDecay(every=4))[step] for step in (0, 19, 20, 59)] == [LR, LR, LR / 2, LR / 4]


def test_a_constant_rate_is_the_peak_rate():
    assert set(rates(Constant())) == {LR}


def test_each_group_has_its_own_peak():
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.5}], lr=1)
    scheduled = Scheduled(optimizer, StepDecay(factor=0.1, every=1), 4, 2)
    scheduled.go_to(2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1, 0.05])


def test_momentum_is_set_only_where_it_is_asked_for_and_stated():
    for schedule, cycled in ((OneCycle(), False), (Cosine(), True)):
        optimizer = an_optimizer(betas=(0.7, 0.8))
        Scheduled(optimizer, schedule, STEPS, EPOCHS, cycle_momentum=cycled)
        assert optimizer.param_groups[0]["betas"] == (0.7, 0.8)
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=LR, momentum=0.5)
    Scheduled(sgd, OneCycle(), STEPS, EPOCHS, cycle_momentum=True)
    assert sgd.param_groups[0]["momentum"] == 0.95
    none = torch.optim.Adagrad([torch.nn.Parameter(torch.ones(2))], lr=LR)
    with pytest.raises(ValueError, match="no momentum that a schedule can set"):
        Scheduled(none, OneCycle(), STEPS, EPOCHS, cycle_momentum=True)


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_an_impossible_rate_is_refused(rate):
    def schedule(lr, step, steps, epochs):
        return rate

    with pytest.raises(ValueError, match="gives the learning rate"):
        Scheduled(an_optimizer(), schedule, STEPS, EPOCHS)


@pytest.mark.parametrize(
    ("schedule", "wrong", "message"),
    [
        (OneCycle, {"warmup": 1.0}, "need 0 < warmup < 1, got 1.0"),
        (OneCycle, {"div": 0.5}, "need div, final_div >= 1, got 0.5"),
        (Cosine, {"warmup": -0.1}, "need 0 <= warmup, end < 1, got -0.1"),
        (StepDecay, {"factor": 0.0}, "factor must be > 0 and <= 1, got 0.0"),
        (StepDecay, {"every": 0}, "every must be >= 1, got 0"),
    ],
)
def test_impossible_settings_are_refused(schedule, wrong, message):
    with pytest.raises(ValueError, match=message):
        schedule(**wrong)
