"""The experiments that come with the project, and what overrides do to one."""

import pytest

from operators.data import allowed_resolutions
from operators.registry import build_operator
from operators.training.optimizers import SOAP
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.config.shipped import names as shipped


@pytest.mark.parametrize("name", shipped("experiment"))
def test_every_experiment_builds_what_it_declares(name):
    experiment = load_experiment(name)
    assert experiment.name == name
    problem = experiment.data.load_recipe().problem
    domain = problem.domain
    allowed = allowed_resolutions(domain.shape[0], domain.kinds[0])
    assert {*experiment.data.training_resolutions, *experiment.resolutions} <= set(allowed)
    dim = problem.domain.dim
    model = {"model": experiment.model.model_dump(), "in_channels": 1, "out_channels": 1}
    # about as many as published at most: 530,305 on the circle, 3.1 million of Transolver's in the
    # plane, and its 12.3 million for vorticity
    most = 12_300_000 if problem.equation == "vorticity" else 3_100_000 if dim == 2 else 600_000
    assert build_operator({**model, "dim": dim}).parameter_count < most
    assert experiment.training.settings().epochs > 0


@pytest.mark.parametrize(("n", "batch"), [(512, 8), (2048, 8), (8192, 4)])
def test_published_settings(n, batch):
    """Table 2a of Cao (2021) and its code: 530,305 parameters, the last 100 samples."""
    experiment = load_experiment(f"burgers-gt-{n}")
    model = {"model": experiment.model.model_dump(), "in_channels": 1, "out_channels": 1}
    assert build_operator(model).parameter_count == 530_305
    assert (experiment.data.resolution, experiment.training.batch) == (n, batch)
    assert experiment.training.settings().cycle_momentum
    splits = experiment.data.load_recipe().splits.ranges(2048)
    assert (splits["train"], splits[experiment.training.selection_split]) == (
        (0, 1024), (1948, 2048)
    )  # fmt: skip


def test_what_is_set_goes_before_what_the_experiment_sets_of_its_recipe():
    own = {"samples": 40, "viscosity": 0.3}
    experiment = load_experiment("burgers-quick").with_overrides(
        {f"data.overrides.{key}": value for key, value in own.items()}
    )
    changed = experiment.with_overrides({"data.overrides.viscosity": 0.2})
    assert changed.data.load_recipe().problem.viscosity == 0.2
    assert changed.data.load_recipe().samples == 40


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epoch": 3}, "unknown key 'epoch': did you mean training.epochs"),
        ({"training.optimizer.name": "sopa"}, "optimizer.name: unknown 'sopa', known: adam, "),
        ({"model.name": "fnoo"}, "model.name: unknown 'fnoo', did you mean fno"),
        ({"resolutions": "64,128"}, r"must be a list, such as \[64,128\], got '64,128'"),
        ({"model.heads": 5}, "heads must divide width, got heads=5, width=64"),
        ({"model.attention": "galerkni"}, "model.attention: .*got 'galerkni'"),
        ({"training.lr": -1.0}, "training.lr: .*greater than 0, got -1.0"),
        ({"data.overrides.viscosty": 1.0}, "unknown key 'viscosty': did you mean"),
        ({"qqqq": 1}, "unknown key 'qqqq': see pdegen keys"),
        ({"noise": 0.1}, "noise: must be a table, got 0.1"),
        ({"noise": {"levl": 0.1}}, "unknown key 'noise.levl': did you mean noise.level"),
        ({"noise.on": "targets"}, "noise.level: is missing"),
        ({"model.width.deep": 3}, "'model.width.deep': model.width has no key 'deep'"),
        ({"noise": {}}, "noise.level: is missing"),
        ({"training.lr": {}}, "training.lr: must be a number"),
        ({"task.steps": 2}, "task.kind: is missing"),
    ],
)
def test_wrong_overrides_are_refused(overrides, message):
    with pytest.raises(SchemaError, match=message):
        load_experiment("burgers-quick").with_overrides(overrides)


def test_a_whole_table_adds_noise_or_a_task():
    plain = load_experiment("darcy-quick")
    assert plain.noise is None
    noisy = plain.with_overrides({"noise": {"kind": "relative", "level": 0.1}})
    assert noisy.noise is not None
    assert (noisy.noise.kind, noisy.noise.level) == ("relative", 0.1)
    assert noisy.task is None
    mapped = plain.with_overrides({"task": {"kind": "map"}, "task.inputs": ["a"]})
    assert mapped.task is not None
    assert mapped.task.model_dump()["inputs"] == ("a",)


def test_a_word_chooses_the_optimizer():
    experiment = load_experiment("burgers-gt-512").with_overrides(
        {"training.optimizer.name": "soap"}
    )
    soap = experiment.training.settings()
    parameter = build_operator(
        {"model": experiment.model.model_dump(), "in_channels": 1, "out_channels": 1}
    ).parameters()
    assert isinstance(soap.optimizer(parameter, 1e-3), SOAP)
    assert not soap.cycle_momentum


def test_a_task_is_set_key_by_key():
    plain = load_experiment("burgers-quick").with_overrides({"shift": False, "reflection": False})
    changed = plain.with_overrides({"task.kind": "rollout", "task.history": 2})
    assert changed.task is not None
    assert (changed.task.kind, changed.task.model_dump()["history"]) == ("rollout", 2)
    assert changed.with_overrides({"task.history": 3}).task.model_dump()["history"] == 3
    with pytest.raises(SchemaError, match=r"task\.kind: is missing, known: map, rollout, time"):
        plain.with_overrides({"task.history": 2})
