"""Optimisers, schedules and losses of experiments: registered classes, records, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from operators.registry import (
    LOSSES,
    OPTIMIZERS,
    REGISTRIES,
    SCHEDULES,
    register_loss,
    register_optimizer,
    register_schedule,
)
from operators.training.optimizers import Adam, MuonAndAdamW
from operators.training.schedules import Cosine, OneCycle
from pdegen.schema import SchemaError, known_keys, parse_overrides
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.keys import keys_of
from pipelines.config.shipped import names
from pipelines.runs.reproduction import overriding

OPTIMISERS = "training.optimizer.name"


class RMSprop(torch.optim.RMSprop):
    """PyTorch's RMSprop."""


@dataclass(frozen=True)
class Halving:
    """The rate is halved after every epoch from a first one.

    Args:
        first: The first epoch with a smaller rate.
    """

    first: int = 1

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        return lr * 0.5 ** max(0, step * epochs // steps + 1 - self.first)


class Largest:
    """The mean of the largest errors.

    Args:
        power: Exponent of the errors. [1]
    """

    def __init__(self, power: float = 1.0) -> None:
        if power <= 0:
            raise ValueError(f"power must be > 0, got {power}")
        self.power = power

    def __call__(self, p: torch.Tensor, u: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return (p - u).abs().flatten(1).amax(1).pow(self.power).mean()


@pytest.fixture
def registered() -> Iterator[None]:
    """An optimiser, a schedule and a loss that are registered after the experiments are read."""
    load_experiment("burgers-quick").keys()
    register_optimizer("rmsprop", RMSprop)
    register_schedule("halving", Halving)
    register_loss("largest", Largest)
    yield
    for registry, name in ((OPTIMIZERS, "rmsprop"), (SCHEDULES, "halving"), (LOSSES, "largest")):
        del registry[name]
    known_keys.cache_clear()


@pytest.mark.usefixtures("registered")
def test_classes_that_are_registered_later_are_known():
    changed = load_experiment("burgers-quick").with_overrides({
        "training.optimizer.name": "rmsprop", "training.optimizer.alpha": 0.9,
        "training.schedule.name": "halving", "training.schedule.first": 3,
        "training.loss.name": "largest", "training.loss.power": 2.0,
    })  # fmt: skip
    settings = changed.training.settings()
    optimizer = settings.optimizer([torch.nn.Parameter(torch.ones(2))], 0.1)
    assert isinstance(optimizer, RMSprop)
    assert (optimizer.param_groups[0]["alpha"], optimizer.param_groups[0]["lr"]) == (0.9, 0.1)
    assert not settings.cycle_momentum
    assert settings.schedule == Halving(3)
    assert isinstance(settings.loss, Largest)
    assert settings.loss.power == 2.0
    recorded = json.loads(json.dumps(changed.model_dump(mode="json")))
    assert Experiment.parse(recorded, "the record") == changed
    assert recorded["training"]["schedule"] == {"name": "halving", "first": 3}
    meanings = {(key.name, key.when): key.meaning for key in keys_of(Experiment)}
    where = ("training.schedule.first", "training.schedule.name = halving")
    assert meanings[where] == "The first epoch with a smaller rate."


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.loss.power": 0.0}, "training.loss: power must be > 0, got 0.0"),
        ({"training.loss.power": "x"}, "training.loss.power: must be a number, got 'x'"),
        ({"training.optimizer.name": "rmsprop", "training.optimizer.alpha": -1.0}, "alpha"),
    ],
)
def test_constructors_refuse_in_one_line(overrides, message):
    experiment = load_experiment("burgers-quick").with_overrides({"training.loss.name": "largest"})
    with pytest.raises(SchemaError, match=message):
        experiment.with_overrides(overrides)


def test_names_are_registered_once():
    for register, name, kind in (
        (register_optimizer, "adam", "an optimizer"),
        (register_schedule, "1cycle", "a schedule"),
        (register_loss, "l2", "a loss"),
    ):
        with pytest.raises(ValueError, match=f"{kind} named '{name}' is already registered"):
            register(name, Adam)
    assert set(REGISTRIES) == {"operator", "optimizer", "schedule", "loss"}


def test_records_of_default_trainings_are_those_of_earlier_versions():
    recorded = load_experiment("burgers-gt-512").model_dump(mode="json")["training"]
    assert list(recorded) == [
        "protocol", "epochs", "batch", "lr", "warmup", "div", "final_div", "clip", "seed",
        "average", "weights", "loss", "optimizer", "symmetries", "start",
    ]  # fmt: skip
    assert recorded["optimizer"] == {"name": "adam"}
    changed = load_experiment("burgers-gt-512").with_overrides({"weight_decay": 1e-4})
    optimizer = changed.model_dump(mode="json")["training"]["optimizer"]
    assert optimizer == {"name": "adam", "weight_decay": 1e-4}


@pytest.mark.parametrize("name", names("experiment"))
def test_every_shipped_experiment_is_its_record(name):
    """Records leave out conditions, which are for studies."""
    experiment = load_experiment(name)
    recorded = Experiment.parse(experiment.model_dump(mode="json"), name)
    assert recorded == experiment.model_copy(update={"conditions": {}})


def test_former_keys_are_those_of_the_cycle():
    experiment = load_experiment("burgers-quick")
    for key in ("training.warmup", "warmup", "training.schedule.warmup"):
        changed = experiment.with_overrides({key: 0.45})
        assert changed.training.settings().schedule == OneCycle(0.45, 25.0)
    cosine = experiment.with_overrides({"training.schedule.name": "cosine"})
    assert cosine.training.settings().schedule == Cosine(warmup=0.05)
    assert cosine.training.momentum == "constant"


@pytest.mark.parametrize("stated", ["name", "command"])
def test_former_keys_set_beside_another_schedule_are_refused_as_in_a_file(stated):
    experiment, keys = load_experiment("burgers-quick"), {"training.warmup": 0.2}
    if stated == "name":
        experiment = experiment.with_overrides({"schedule.name": "cosine"})
    else:
        keys["schedule.name"] = "cosine"
    with pytest.raises(SchemaError, match="warmup is a key of the schedule 1cycle, not of cosine"):
        experiment.with_overrides(keys)
    back = experiment.with_overrides({**keys, "training.schedule.name": "1cycle"})
    assert back.training.settings().schedule.warmup == 0.2
    own = experiment.with_overrides({"schedule.name": "cosine", "schedule.warmup": 0.2})
    assert own.training.settings().schedule == Cosine(warmup=0.2)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"warmup": 0.2, "schedule": {"name": "cosine"}}, "warmup is a key of the schedule 1cycle"),
        ({"div": 9.0, "schedule": {"name": "1cycle", "div": 9.0}}, "div is given twice"),
        ({"warmup": 2.0}, r"training\.schedule\.warmup: must be less than 1, got 2"),
        ({"schedule": 3}, r"training\.schedule: must be a table, got 3"),
    ],
)
def test_a_schedule_is_stated_once(training, message):
    content = load_experiment("burgers-fno-quick").model_dump(mode="json")
    kept = {key: value for key, value in content["training"].items() if key != "schedule"}
    with pytest.raises(SchemaError, match=message):
        Experiment.parse({**content, "training": {**kept, **training}}, "own")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("burgers-quick", "training.schedule.name", "cosine"),
        ("burgers-quick", "training.warmup", 0.4),
        ("burgers-fno-quick", "training.optimizer.name", "adamw"),
        ("burgers-fno-quick", "training.schedule.name", "1cycle"),
    ],
)
def test_commands_that_reports_print_give_the_same_experiment(name, key, value):
    changed = load_experiment(name).with_overrides({key: value})
    words = overriding(changed)
    assert words is not None
    overrides = parse_overrides(words[2::2])
    assert load_experiment(name).with_overrides(overrides) == changed


WRONG = [
    (
        "optimizer.name=adam optimizer.weight_decay=-1",
        "weight_decay: must be at least 0, got -1",
    ),
    *(
        (
            f"{kind}.name=sopa",
            rf"{kind}\.name: unknown 'sopa', known: {', '.join(registry.known)}; ",
        )
        for kind, registry in REGISTRIES.items()
        if kind != "operator"
    ),
    ("optimizer.name=sopa", r"; one of your own needs --plugin FILE\.py"),
    ("optimizer=adam", "training.optimizer"),
    ("optimizer.name=sgd optimizer.momentum=1.0", r"momentum: must be less than 1, got 1"),
    (
        "optimizer.name=sgd optimizer.momentum=0.0 optimizer.nesterov=true",
        "training.optimizer: nesterov needs momentum > 0",
    ),
    ("optimizer.name=muon optimizer.beta1=0.5", "optimizer.beta1' does not apply to muon"),
    ("schedule.name=steps schedule.every=0", r"schedule\.every: must be at least 1, got 0"),
    ("schedule.name=steps schedule.factor=0", r"schedule\.factor: must be greater than 0, got 0"),
    ("schedule.name=cosine schedule.end=2", r"schedule\.end: must be less than 1, got 2"),
    ("schedule.every=3", "schedule.every' does not apply to 1cycle"),
    ("schedule.name=steps warmup=0.2", "warmup is a key of the schedule 1cycle, not of steps"),
    ("loss.name=huber loss.delta=0", r"loss\.delta: must be greater than 0, got 0"),
    ("loss.name=squared-h1 loss.gamma=-1", r"loss\.gamma: must be at least 0, got -1"),
    ("loss.name=mean-square loss.weighted=true", "loss.weighted' does not apply to mean-square"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_wrong_settings_are_refused_before_anything_is_written(
    refused, tmp_path, settings, message
):
    words = [word for s in settings.split() for word in ("--set", f"training.{s}")]
    line = refused("train", "burgers-quick", *words, "--out", str(tmp_path / "run"))
    assert re.search(message, line), line


def test_muon_is_built_with_one_group_for_matrices():
    experiment = load_experiment("burgers-fno-quick").with_overrides({OPTIMISERS: "muon"})
    operator = experiment.model.build(1, 1, 1)
    optimizer = experiment.training.settings().optimizer(operator.parameters(), 1e-3)
    assert isinstance(optimizer, MuonAndAdamW)
    matrices, others = ([p.ndim for p in group["params"]] for group in optimizer.param_groups)
    assert set(matrices) == {2}
    assert 2 not in others
