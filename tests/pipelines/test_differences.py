"""Warnings of `pdegen evaluate` and `predict` about constants other than those of the training."""

import json

import pytest

from operators.training.checkpoint import check_checkpoint
from pdegen.recipe import load_recipe
from pipelines.config.experiment import load_experiment
from pipelines.runs import differences as compared
from pipelines.runs.differences import differences, training_problem
from pipelines.runs.evaluation import parse_recorded
from tests.pipelines.command import SMALL, quietly

LAW = "viscosity={law = 'log-uniform', low = 0.01, high = 0.1}"
WARNING = "pdegen: warning: the store differs from the training data: "
FNO = ["--set", "model.modes=4", "--set", "model.width=8", "--set", "epochs=1", "--set", "batch=4"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Stores with several viscosities, and operators that are trained on two of them."""
    folder = tmp_path_factory.mktemp("differences")
    for name, setting in {
        "law": LAW, "low": "viscosity=0.02", "finer": "viscosity=0.02", "high": "viscosity=0.5",
        "narrow": LAW.replace("0.01", "0.02"), "wide": LAW.replace("0.01", "0.005"),
    }.items():  # fmt: skip
        small = ["64" if name == "finer" and word == "32" else word for word in SMALL]
        quietly("generate", "burgers-quick", *small, "--set", setting,
                "--out", folder / f"{name}.zarr")  # fmt: skip
    for name in ("law", "low"):
        declared = folder / f"{name}.toml"
        quietly("train", "--model", "fno", "--data", folder / f"{name}.zarr", *FNO,
                "--out", folder / name)  # fmt: skip
        text = (folder / name / "experiment.toml").read_text()
        declared.write_text(text.replace("parameters = true", "parameters = false"))
    quietly("train", folder / "law.toml", "--data", folder / "law.zarr", "--out", folder / "blind")
    return folder


def warnings(outcome):
    assert outcome.status == 0, outcome.err
    return [line.removeprefix(WARNING) for line in outcome.err if "differs" in line]


@pytest.mark.parametrize(
    ("run", "store", "expected"),
    [
        ("low", "low", []),
        ("low", "finer", []),
        ("low", "high", ["viscosity = 0.5, trained on 0.02"]),
        ("low", "law", ["viscosity = 0.01 to 0.1, trained on 0.02"]),
        ("blind", "low", []),
        ("blind", "high", ["viscosity = 0.5, trained on 0.01 to 0.1"]),
        ("law", "narrow", []),
        ("law", "wide", ["viscosity = 0.005 to 0.1, trained on 0.01 to 0.1"]),
    ],
)
def test_other_constants_are_named(made, pdegen, tmp_path, run, store, expected):
    words = [made / run / "best.safetensors", "--data", made / f"{store}.zarr"]
    assert warnings(pdegen("evaluate", *words)) == expected
    assert warnings(pdegen("predict", *words, "--out", tmp_path / "p.zarr")) == expected


def test_checkpoints_of_earlier_versions_are_compared_by_their_recipe(made):
    description = check_checkpoint(made / "low" / "best.safetensors")
    del description["problem"]
    experiment = parse_recorded(description["experiment"], "")
    # the experiment names burgers-quick, whose fingerprint is another one
    assert differences(description, experiment, str(made / "high.zarr")) == ""
    recipe = experiment.data.load_recipe()
    description["data"]["fingerprint"] = recipe.fingerprint
    line = differences(description, experiment, str(made / "high.zarr"))
    assert f"viscosity = 0.5, trained on {recipe.problem.viscosity}; " in line
    unknown = experiment.model_copy(
        update={"data": experiment.data.model_copy(update={"recipe": "gone"})}
    )
    assert differences(description, unknown, str(made / "high.zarr")) == ""


def test_the_problem_of_a_stream_is_that_of_the_stream(made):
    experiment = load_experiment("burgers-quick").with_overrides(
        {"data.stream.recipe": "burgers-quick", "data.stream.overrides.viscosity": 0.3}
    )
    low = str(made / "low.zarr")
    assert training_problem(experiment, low)["viscosity"] == 0.3
    assert training_problem(load_experiment("burgers-quick"), low)["viscosity"] == 0.02


def compare(monkeypatch, stored, trained):
    """The differences of two tables of problems."""

    class Opened:
        class metadata:
            class recipe:
                problem = json.loads(json.dumps(stored))

    monkeypatch.setattr(compared, "open_sealed", lambda url: Opened)
    return differences({"problem": trained}, None, "")  # type: ignore[arg-type]


def table(name, **changes):
    recipe = load_recipe(name).with_overrides({f"problem.{k}": v for k, v in changes.items()})
    return recipe.problem.model_dump(mode="json")


def test_sources_and_laws_of_coefficients_are_compared(monkeypatch):
    quick = table("darcy-quick")
    source = table("darcy-source")
    assert "source = neumann-gaussian, trained on 1.0" in compare(monkeypatch, source, quick)
    assert "source = 1.0, trained on neumann-gaussian" in compare(monkeypatch, quick, source)
    normal = table("darcy-lognormal")
    assert "coefficient.kind = log-normal, trained on two-phase" in (
        compare(monkeypatch, normal, quick)
    )
    assert compare(monkeypatch, table("burgers-quick"), quick) == (
        "equation = burgers, trained on darcy"
    )


def test_keys_of_discretisation_are_not_compared(monkeypatch):
    for name, changes in {
        "darcy-quick": {"resolution": 85, "solver.refinement": 3},
        "elasticity-hyperelastic": {"refinement": 3, "material.steps": 7},
        "pipe": {"refinement": 2},
        "darcy-inclusion-quick": {"elements": 64},
        "ns-quick": {"restriction": "stride", "solver.resolution": 64},
    }.items():
        before, after = table(name), table(name, **changes)
        assert before != after
        assert compare(monkeypatch, after, before) == ""


def test_laws_in_lists_and_keys_that_older_stores_lack_are_compared(monkeypatch):
    law = {"law": "uniform", "low": 1.0, "high": 2.0}
    phases = table("darcy-quick") | {
        "coefficient": {"kind": "phases", "thresholds": [0.0], "values": [law, 5.0]}
    }
    changed = json.loads(json.dumps(phases))
    changed["coefficient"]["values"] = [1.5, 6.0]
    assert compare(monkeypatch, changed, phases) == ("coefficient.values.1 = 6.0, trained on 5.0")
    older = {key: value for key, value in table("darcy-quick").items() if key != "source"}
    assert compare(monkeypatch, older, {**older, "source": 2.0}) == "source = 1.0, trained on 2.0"
    own = {"equation": "gone", "speed": 1.0, "resolution": 8}
    assert compare(monkeypatch, own, {**own, "speed": 2.0, "resolution": 4}) == (
        "speed = 1.0, trained on 2.0"
    )
    assert compare(monkeypatch, {}, own) == compare(monkeypatch, own, {}) == ""
