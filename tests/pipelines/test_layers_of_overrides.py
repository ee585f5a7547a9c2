"""Values of a key that several layers set: dataset, quick version, operator, command, search. The
layer that comes later holds, whichever name of the key it uses."""

from copy import deepcopy
from functools import reduce
from itertools import permutations
from typing import get_args

import pytest

from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import SELECTING, SchemaError, models_in, parse_override, parse_overrides
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


# texts of `--set` for an experiment that give tables, and the same changes key by key
ALIKE = [
    (["training={epochs=3,lr=0.5}"], ["training.epochs=3", "training.lr=0.5"]),
    (["training={epochs=3}", "epochs=4"], ["training.epochs=4"]),
    (["training={loss={name='l2'}}"], ["training.loss.name=l2"]),
    (["training={warmup=0.2}"], ["training.schedule.warmup=0.2"]),
    (["schedule={name='cosine'}"], ["training.schedule.name=cosine"]),
    (["model={width=32,name='fno'}"], ["model.width=32", "model.name=fno"]),
    (["model={name='fno'}", "model={width=32}"], ["model.name=fno", "model.width=32"]),
    (["data={resolution=32}"], ["data.resolution=32"]),
    (["data.overrides={samples=96}", "data.overrides.seed=3"],
     ["data.overrides.samples=96", "data.overrides.seed=3"]),
    (["data.overrides.seed=3", "data.overrides={samples=96}"],
     ["data.overrides.samples=96", "data.overrides.seed=3"]),
    (["data={overrides={problem={viscosity=0.2}}}"], ["data.overrides.viscosity=0.2"]),
    (["data.stream={recipe='burgers-quick',overrides={seed=4}}"],
     ["data.stream.recipe=burgers-quick", "data.stream.overrides.seed=4"]),
    (["noise={level=0.1,on='targets'}"], ["noise.on=targets", "noise.level=0.1"]),
    (["task={kind='map',inputs=['a']}"], ["task.kind=map", "task.inputs=['a']"]),
    (["normalization={input='scalar'}"], ["normalization.input=scalar"]),
]  # fmt: skip


@pytest.mark.parametrize(("tables", "keys"), ALIKE, ids=lambda texts: " ".join(texts))
def test_tables_and_their_keys_change_an_experiment_alike(tables, keys):
    original = load_experiment("burgers-quick")
    expected = original.with_overrides(parse_overrides(keys))
    assert original.with_overrides(parse_overrides(tables)) == expected != original
    assert original.with_overrides(nested(parse_overrides(keys))) == expected


def nested(overrides):
    """Overrides as tables in tables, as Python and TOML files may write them."""
    content = {}
    for key, value in overrides.items():
        *parents, last = key.split(".")
        reduce(lambda table, name: table.setdefault(name, {}), parents, content)[last] = value
    return content


@pytest.mark.parametrize(
    ("tables", "keys"),
    [
        (["problem={viscosity=0.2}"], ["viscosity=0.2"]),
        (["problem={initial={sigma=3}}", "seed=3"], ["initial.sigma=3", "seed=3"]),
        (["splits={train=8}"], ["splits.train=8"]),
        (["viscosity={law='uniform',low=1,high=2}"],
         ["viscosity.low=1", "viscosity.high=2", "viscosity.law=uniform"]),
        (["viscosity={law='uniform',low=1,high=2}", "viscosity.high=3"],
         ["viscosity={high=3}", "viscosity={law='uniform'}", "viscosity={low=1}"]),
    ],
    ids=lambda texts: " ".join(texts),
)  # fmt: skip
def test_tables_and_their_keys_change_a_recipe_alike(tables, keys):
    original = load_recipe("burgers-quick")
    changed = [original.with_overrides(parse_overrides(texts)) for texts in (tables, keys)]
    assert changed[0] == changed[1] != original


REFUSED = {
    "training.seed=5": "training.seed cannot be set",
    "training.protocol=published": "the benchmark sets the protocols",
    "model.width=8": "the benchmark sets operators and seeds",
    "data.overrides.samples=96": "recipes and streams belong to the datasets",
    "data.stream.overrides.seed=3": "recipes and streams belong to the datasets",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items())
def test_a_benchmark_refuses_tables_as_their_keys(text, message):
    for overrides in (parse_overrides([text]), nested(parse_overrides([text]))):
        with pytest.raises(SchemaError, match=message):
            declared(protocols=["validation"]).with_overrides(overrides, sound=False)


@pytest.mark.parametrize(
    ("owner", "overrides", "message"),
    [
        ("FNO", {"data": {"recipe": "darcy-quick"}}, "data.recipe belongs to the dataset"),
        ("FNO", {"data": {"overrides": {"seed": 3}}}, "data.overrides.seed belongs to the dataset"),
        ("FNO", {"model": {"width": 8}}, "model.width is set in its model, not in overrides"),
        ("search", {"training": {"seed": [1]}}, "needs the same training.seed for all trials"),
        ("search", {"data": {"resolution": [8]}}, "only try settings of the training"),
    ],
)
def test_tables_of_a_benchmark_file_are_checked_as_their_keys(owner, overrides, message):
    changes = {"search": overrides}
    if owner == "FNO":
        changes = {"operators": {"FNO": {"model": {"name": "fno"}, "overrides": overrides}}}
    with pytest.raises(SchemaError, match=message):
        declared(**changes).check()


@pytest.mark.parametrize("table", [False, True])
def test_the_command_replaces_a_key_within_tables_of_all_layers(table):
    """Of the dataset, the quick version and the operator."""
    layer = {"training": {"lr": 0.5, "epochs": 3}}
    content = declared().model_dump(mode="json")
    content["datasets"]["burgers"]["overrides"] |= layer
    content["operators"]["FNO"]["overrides"] = layer
    content["quick"] = {
        "datasets": ["burgers"], "overrides": layer, "changes": {"burgers": layer}
    }  # fmt: skip
    benchmark = Benchmark.parse(content, "layers")
    for version in (benchmark, benchmark.quickly()):
        overrides = {"training": {"lr": 0.25}} if table else {"lr": 0.25}
        changed = version.with_overrides(overrides, sound=False)
        training = changed.experiment(Case("burgers", "FNO"), 0, {}).training
        assert (training.lr, training.epochs) == (0.25, 3)


def test_overrides_of_a_recipe_in_a_file_may_be_tables_short_or_full_keys():
    declared_as = [{"problem": {"viscosity": 0.2}}, {"viscosity": 0.2}, {"problem.viscosity": 0.2}]
    for former in [*declared_as, {"problem.viscosity": 0.3, "viscosity": 0.2}]:
        content = load_experiment("burgers-quick").model_dump(mode="json")
        content["data"]["overrides"] = former
        experiment = Experiment.parse(content, "former")
        assert experiment.data.load_recipe().problem.viscosity == 0.2
        for later in declared_as:
            changed = experiment.with_overrides({"data.overrides": {"seed": 1, **later}})
            assert changed.data.overrides == {"seed": 1, "problem.viscosity": 0.2}


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
def test_every_shipped_benchmark_takes_the_value_of_the_command(name):
    benchmark = load_benchmark(name, sound=False)
    if not isinstance(benchmark, Benchmark):
        return
    for version in [benchmark, *([benchmark.quickly()] if benchmark.quick else [])]:
        changed = version.with_overrides({"lr": 0.0625, "batch": 3, "warmup": 0.0625}, sound=False)
        distinct = {  # operators with the same overrides are trained alike
            (case.dataset, case.protocol, str(changed.operators[case.operator].overrides)): case
            for case in changed.cases()
        }
        for case in distinct.values():
            training = changed.experiment(case, 0, {}).training
            assert (training.lr, training.batch) == (0.0625, 3)
            assert getattr(training.schedule, "warmup", 0.0625) == 0.0625
