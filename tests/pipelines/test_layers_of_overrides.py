"""Values of a key that several layers set: dataset, quick version, operator, command, search. The
layer that comes later holds, whichever name of the key it uses."""

from itertools import permutations

import pytest

from pipelines.config.benchmark import Benchmark, Case, load_benchmark
from pipelines.config.experiment import load_experiment
from pipelines.config.shipped import names
from tests.pipelines.test_benchmark import declared

NAMES = ("warmup", "training.warmup", "training.schedule.warmup")


@pytest.mark.parametrize("order", list(permutations(NAMES)))
def test_the_last_name_of_a_key_holds(order):
    changes = {key: 0.1 * (i + 1) for i, key in enumerate(order)}
    changed = load_experiment("burgers-quick").with_overrides(changes)
    assert changed.training.schedule.warmup == pytest.approx(0.3)


@pytest.mark.parametrize("command", NAMES)
@pytest.mark.parametrize("dataset", NAMES)
@pytest.mark.parametrize("operator", [None, *NAMES])
def test_the_command_replaces_all_names_of_its_key(dataset, operator, command):
    benchmark = declared()
    burgers = benchmark.datasets["burgers"].model_copy(
        update={"overrides": {**benchmark.datasets["burgers"].overrides, dataset: 0.1}}
    )
    fno = benchmark.operators["FNO"]
    if operator is not None:
        fno = fno.model_copy(update={"overrides": {operator: 0.2}})
    update = {"datasets": {"burgers": burgers}, "operators": {**benchmark.operators, "FNO": fno}}
    benchmark = benchmark.model_copy(update=update)
    case = Case("burgers", "FNO")

    def warmup(benchmark, chosen):
        return benchmark.experiment(case, 0, chosen).training.schedule.warmup

    assert warmup(benchmark, {}) == (0.1 if operator is None else 0.2)
    assert warmup(benchmark, {command: 0.4}) == 0.4  # a search
    changed = benchmark.with_overrides({command: 0.3}, sound=False)
    assert warmup(changed, {}) == 0.3
    assert changed.differs == f"Set by the command: {full(command)} = 0.3."


def full(key):
    return "training.schedule.warmup" if key == "warmup" else key


@pytest.mark.parametrize("name", names("benchmark"))
@pytest.mark.parametrize("key", ["warmup", "lr", "batch"])
def test_every_shipped_benchmark_takes_the_value_of_the_command(name, key):
    benchmark = load_benchmark(name, sound=False)
    if not isinstance(benchmark, Benchmark):
        return
    value = 3 if key == "batch" else 0.0625
    for version in [benchmark, *([benchmark.quickly()] if benchmark.quick else [])]:
        changed = version.with_overrides({key: value}, sound=False)
        for case in changed.cases():
            training = changed.experiment(case, 0, {}).training
            if key != "warmup":
                assert getattr(training, key) == value
            elif hasattr(training.schedule, "warmup"):
                assert training.schedule.warmup == value
