"""Values of a key that several layers set: dataset, quick version, operator, command, search. The
layer that comes later holds, whichever name of the key it uses."""

from copy import deepcopy
from functools import reduce
from itertools import permutations
from typing import get_args

import pytest

from pdegen.overrides import SELECTING, parse_override, parse_overrides
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError, models_in
from pipelines.config.benchmark import Benchmark, Case, load_benchmark
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.shipped import names
from tests.pipelines.test_benchmark import declared

NAMES = ("warmup", "training.warmup", "training.schedule.warmup")


@pytest.mark.parametrize("order", list(permutations(NAMES)))
def test_the_last_name_of_a_key_holds(order):
    changes = {key: 0.1 * (i + 1) for i, key in enumerate(order)}
    changed = load_experiment("burgers-quick").with_overrides(changes)
    assert changed.training.schedule.warmup == pytest.approx(0.3)


@pytest.mark.parametrize(
    "texts",
    [
        ["model.name=fno", "model.width=32"],
        ['model={name="fno"}', "model.width=32"],
        ["model.name=fno", "model.preset=burgers", "model.width=32"],
        ["training.loss.name=weighted-h1", "training.loss.published=true"],
    ],
)
def test_keys_of_a_command_hold_in_any_order(texts):
    original = load_experiment("burgers-quick")
    found = [original.with_overrides(parse_overrides(order)) for order in permutations(texts)]
    assert len({experiment.model_dump_json() for experiment in found}) == 1
    key, value = parse_override(texts[-1])
    assert reduce(dict.__getitem__, key.split("."), found[0].model_dump()) == value


def test_a_key_of_another_variant_is_refused_in_any_order():
    texts = ["training.optimizer.weight_decay=0.3", "training.optimizer.name=soap"]
    for order in permutations(texts):
        with pytest.raises(SchemaError, match=r"optimizer\.weight_decay' does not apply to soap"):
            load_experiment("burgers-quick").with_overrides(parse_overrides(order))


def test_a_later_layer_replaces_keys_below_its_own():
    single = load_experiment("burgers-nu-single-quick")
    changed = single.with_overrides({"data.overrides.viscosity": 0.01})
    assert changed.data.load_recipe().problem.viscosity == 0.01
    table = {"normalization": {"input": "scalar", "target": "scalar"}}
    layered = single.with_overrides({"normalization.input": "none", **table})
    assert layered.normalization.input == "scalar"


def test_changed_tables_stay_as_they_were_given():
    changes = {"model": {"name": "fno"}, "model.width": 32}
    given = deepcopy(changes)
    assert load_experiment("burgers-quick").with_overrides(changes).model.width == 32
    assert changes == given


def test_the_keys_that_select_variants_are_known():
    names, models = set(), {Experiment, Recipe}
    while models:
        fields = [field for model in models for field in model.model_fields.values()]
        unions = [list(models_in(field.annotation)) for field in fields]
        for variant in (variant for union in unions if len(union) > 1 for variant in union):
            words = {key: get_args(f.annotation) for key, f in variant.model_fields.items()}
            names |= {key for key, of in words.items() if len(of) == 1 and isinstance(of[0], str)}
        models = {model for union in unions for model in union}
    assert names == set(SELECTING)


def test_the_last_text_of_a_repeated_key_counts():
    texts = ["training.epochs=5", "epochs=7", "training.epochs=9"]
    changed = load_experiment("burgers-quick").with_overrides(parse_overrides(texts))
    assert changed.training.epochs == 9


def test_the_command_replaces_the_search_for_the_values_of_its_key():
    search = {"training.lr": [1e-3, 2e-3], "warmup": [0.1, 0.2]}
    changed = declared(search=search).with_overrides({"lr": 0.01}, sound=False)
    case = Case("burgers", "FNO")
    assert changed.searched(case) == [{"warmup": 0.1}, {"warmup": 0.2}]
    for chosen in changed.searched(case):
        assert changed.experiment(case, 0, chosen).training.lr == 0.01


def test_the_command_cannot_set_the_protocols_of_a_benchmark():
    changes = {"training.protocol": "published"}
    declared().with_overrides(changes, sound=False)
    with pytest.raises(SchemaError, match="cannot be set: the benchmark sets the protocols"):
        declared(protocols=["validation"]).with_overrides(changes, sound=False)


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
