"""The command `pdegen study noise`: a report, and wrong requests in one line."""

import re

import pytest
from scipy.io import savemat

from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import load_experiment
from pipelines.studies.noise_cells import parse_levels, parse_trained
from tests.pipelines.noise.conftest import CPU, DATA, MODEL, a_study

SETS = [word for key, value in MODEL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def study(pdegen, store, tmp_path):
    """Calls the command on the small store."""

    def called(*words, data=store):
        return pdegen("study", "noise", "darcy-inverse-quick", "--data", data, "--out",
                      tmp_path / "s", *SETS, *words)  # fmt: skip

    return called


def test_the_command_writes_a_report(study, tmp_path):
    outcome = study("--train-levels", "0.1", "--test-levels", "0.1", "--method", "total variation",
                    "--method", "Tikhonov", "--inversion-samples", "1")  # fmt: skip
    assert (outcome.status, outcome.out) == (0, [str(tmp_path / "s" / "report.html")])
    assert "inputs u -> a" in outcome.err
    # a training, the model, the constant, and the two methods
    assert "5/5" in outcome.err[-1]
    page = (tmp_path / "s" / "report.md").read_text()
    assert "--method 'total variation' --method Tikhonov" in page
    assert "maximum a posteriori" not in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train-levels", "0,-0.1"], "must be >= 0, got -0.1"),
        (["--train-levels", "nan"], "noise level: .*nan"),
        (["--train-levels", "all"], "a range of levels has 0 <= low < high, got"),
        (["--train-levels", "0,1,all,all"], "train levels must be one or more different numbers"),
        (["--train-levels", "0,al"], "levels must be numbers separated by commas, got '0,al'"),
        (["--train-levels", "1,all", "--set", "noise.kind=snr"], "snr takes one level in decibels"),
        (
            ["--test-levels", "0.1,0.10000000001"],
            r"test levels must be one or more different numbers, got \(0.1, 0.1",
        ),
        (["--seeds", "0"], "seeds"),
        (["--inversion-samples", "0"], "'--inversion-samples'.*greater than or equal to 1, got 0"),
        (
            ["--assumed-level", "3"],
            r"--assumed-level must be positive numbers that include 1, got \(3.0,\)",
        ),
        (["--assumed-level", "1,3,3"], "--assumed-level must be numbers that differ"),
        (
            ["--test-kind", "ensemble"],
            "methods already assume ensemble noise; leave this option out",
        ),
        (
            ["--test-kind", "snr"],
            "test kind: methods that assume ensemble noise cannot be tested with snr noise",
        ),
        (
            ["--test-kind", "sensors"],
            "methods that assume ensemble noise cannot be tested with sensors noise",
        ),
        (["--test-kind", "salt"], "test kind: .*unknown kind 'salt'"),
        (["--cells", "3"], "cells must be at least 4, got 3"),
        (["--cells", "14"], "it must be 1 to 13"),
        (["--set", "noise.kind=sensors", "--set", "noise.fraction=1.5"], "noise.fraction"),
        (["--set", "data.resolution=10"], "resolution 10 is not a subsample of the 13 cell points"),
        (["--method", "tv"], "unknown method 'tv': known: 'total variation', 'Tikhonov',"),
        (["--set", "data.input=a", "--set", "data.target=u"], "must learn u -> a"),
    ],
)
def test_a_wrong_request_ends_with_one_line(study, tmp_path, words, message):
    outcome = study("--train-levels", "0", "--test-levels", "0", *words)
    assert outcome.status == 2, outcome.err
    (line,) = outcome.err
    assert re.search(message, line), line
    assert not (tmp_path / "s").exists()


def test_a_store_of_another_kind_is_refused(experiment, tmp_path):
    for recipe, changes, message in (
        ("darcy-quick", {**DATA, "problem.coefficient.kind": "log-normal"},
         "inverts two-phase coefficients only, got log-normal"),
        ("burgers-quick", {"samples": 12}, r"is a store of burgers, .* needs one of darcy"),
    ):  # fmt: skip
        url = str(tmp_path / f"{recipe}.zarr")
        generate(load_recipe(recipe).with_overrides(changes), url, workers=1)
        with pytest.raises(SchemaError, match=message):
            a_study(experiment, url, tmp_path / "s").run(CPU)
        assert not (tmp_path / "s").exists()
    flow = load_experiment("burgers-inverse-quick")  # which has a reflection
    with pytest.raises(SchemaError, match="reflection changes the sign of all inputs"):
        a_study(flow, url, tmp_path / "s")


def test_a_store_without_a_law_is_refused(pdegen, study, store, tmp_path):
    """Of a published file nobody knows the law of the coefficient, which is the prior."""
    mat, url, held = tmp_path / "d.mat", tmp_path / "again.zarr", open_sealed(store)
    a, u = (held.values(name, range(20)) for name in ("a", "u"))
    savemat(mat, {"coeff": a, "sol": u})
    assert pdegen("import", mat, "--out", url).status == 0
    outcome = study(data=url)
    (line,) = outcome.err
    assert (outcome.status, (tmp_path / "s").exists()) == (2, False)
    assert "again.zarr has no recipe, and classical methods need the distribution" in line


def test_levels_as_words():
    assert parse_levels("0, 0.05,1e-1") == (0.0, 0.05, 0.1)
    assert parse_trained("0.02, all", (0.05, 0.1)) == (0.02, (0.02, 0.1))
    assert parse_trained("all", (0.05, 0.0)) == ((0.0, 0.05),)
