"""The command `pdegen study noise`: a report, and wrong requests in one line."""

import re

import pytest
from scipy.io import savemat

from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import load_experiment
from pipelines.studies.inversions import check_methods, parse_levels, parse_trained
from tests.pipelines.noise.conftest import CPU, DATA, MODEL, a_study
from tests.readme import replaced

SETS = [word for key, value in MODEL.items() for word in ("--set", f"{key}={value}")]

MODELS = ["--model", "galerkin-transformer-2d", "--model", "fno"]


def condition(value):
    return "--condition", "c", "--set", f"conditions.c.{value}"


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


def test_a_study_of_classical_methods_alone_trains_nothing(study, tmp_path):
    outcome = study("--train-levels", "none", "--test-levels", "0.1", "--method", "Tikhonov",
                    "--inversion-samples", "1")  # fmt: skip
    assert outcome.status == 0
    assert "2/2" in outcome.err[-1]  # the constant and the method
    page = (tmp_path / "s" / "report.md").read_text()
    assert "--train-levels none" in page
    assert "Trainings" not in page
    assert "Reported epoch" not in page
    assert "n = 1*" in page  # one table, of the samples that both share
    assert [path.name for path in (tmp_path / "s" / "models").iterdir()] == ["mean.safetensors"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train-levels", "0,-0.1"], "must be >= 0, got -0.1"),
        (["--train-levels", "nan"], "noise level: .*nan"),
        (["--test-levels", "1e300"], r"the level of ensemble noise must be <= 1e6, got 1e\+300"),
        (["--train-levels", "0,all", "--test-levels", "0,1e7"], "must be <= 1e6, got 1e"),
        (["--set", "noise.kind=snr", "--test-levels", "-1e300"], "must be >= -120 dB, got -1e"),
        (["--assumed-level", "1,1e300"], "--assumed-level must be numbers from 1e-6 to 1e6"),
        (
            ["--set", "training.loss.name=flow", "--set", "normalization.target=none"],
            "training.loss: flow needs normalised targets: set normalization.target",
        ),
        (["--set", "training.loss.name=gaussian"], "training.loss: gaussian is for values, a of"),
        (["--set", "training.conformal=true"], "training.conformal needs .* 18 validation sampl"),
        (["--train-levels", "none,0"], "levels must be numbers separated by commas, got 'none,0'"),
        (["--train-levels", "none", "--method", "none"], "leaves classical methods alone: it excl"),
        (["--train-levels", "all"], "a range of levels has 0 <= low < high, got"),
        (["--train-levels", "0,1,all,all"], "train levels must be one or more different numbers"),
        (["--train-levels", "0,al"], "levels must be numbers separated by commas, got '0,al'"),
        (["--train-levels", "1,all", "--set", "noise.kind=snr"], "snr takes one level in decibels"),
        (
            ["--test-levels", "0.1,0.10000000001"],
            r"test levels must be one or more different numbers, got \(0.1, 0.1",
        ),
        (["--seeds", "0"], "seeds"),
        (
            ["--set", "training.seed=7"],
            "training.seed cannot be set, a study has several: use --seeds",
        ),
        (["--set", "training={seed=7}"], "training.seed cannot be set, a study has several"),
        (["--set", "noise.level=1"], "noise.level cannot be set, .*: use --train-levels"),
        (["--set", "noise={kind='relative',level=1}"], "noise.level cannot be set"),
        (["--inversion-samples", "0"], "'--inversion-samples'.*greater than or equal to 1, got 0"),
        (
            ["--assumed-level", "3"],
            r"--assumed-level must be numbers from 1e-6 to 1e6 that include 1, got \(3.0,\)",
        ),
        (["--assumed-level", "1,3,3"], "--assumed-level must be numbers that differ"),
        (["--condition", "pink"], "unknown condition 'pink'"),
        ([*condition("noise.kind=ensemble")], "conditions.c.noise: methods are told this noise"),
        ([*condition("noise.kind=snr")], "conditions.c.noise: levels of ensemble and snr noise"),
        ([*condition("noise.kind=sensors")], "conditions.c.noise: methods know the points of"),
        ([*condition("noise.kind=salt")], "conditions.c.noise: kind: unknown kind 'salt'"),
        ([*condition("noise.fresh=false")], "noise.fresh is for training samples, a condition is"),
        ([*condition("kind=salt")], "unknown key 'conditions.c.kind': keys are conditions.NAME.tr"),
        ([*condition("truth.tauu=3.0")], "conditions.c.truth: unknown key 'tauu': did you mean"),
        (
            [*condition("truth.seed=3")],
            "conditions.c.truth: seed is that of the recipe darcy-quick",
        ),
        ([*condition("truth.problem.resolution=9")], "conditions.c.truth: samples have other poin"),
        (
            [*condition("truth.coefficient={kind='log-normal'}")],
            "conditions.c.truth: methods are told two phases, the truths have others",
        ),
        ([*condition("truth.above=12.0")], "conditions.c.truth: methods are told these values: le"),
        (
            [*condition("truth.above=3")],
            "conditions.c.truth: methods are told two phases, the truths",
        ),
        (
            [*condition("truth.select={statistic='share',low=2,high=3}")],
            r"conditions.c.truth: sample 0: none of 1000 attempts has a share in \[2, 3\]",
        ),
        (["--condition", "all"], "unknown condition 'all': it has none"),
        (
            [
                "--condition",
                "all",
                "--set",
                "conditions.a b.noise.level=0.2",
                "--set",
                "conditions.A-b.noise.level=0.3",
            ],
            "conditions need different names, got a b, A-b",
        ),
        (
            ["--condition", "all", "--set", f"conditions.{101 * 'x'}.noise.level=0.2"],
            "conditions: a name has at most 100 bytes, got 'xxx",
        ),
        ([*condition("noise.level=-1")], "conditions.c.noise: the level of ensemble noise must be"),
        (["--cells", "3"], "cells must be at least 4, got 3"),
        (["--cells", "14"], "it must be 1 to 13"),
        (["--set", "noise.kind=sensors", "--set", "noise.fraction=1.5"], "noise.fraction"),
        (["--set", "data.resolution=10"], "resolution 10 is not a subsample of the 13 cell points"),
        (["--method", "tv"], "unknown method 'tv': known: 'total variation', 'Tikhonov',"),
        (["--method", "none", "--method", "Tikhonov"], "--method none excludes other methods"),
        (
            ["--set", "data.input=a", "--set", "data.target=u", "--method", "Tikhonov"],
            "--method 'Tikhonov': there are no classical methods: .* does not learn u -> a",
        ),
        (["--model", "fno"], "is a key of galerkin-transformer-2d, which --model does not name"),
        (["--model", "fnoo"], "unknown model 'fnoo': did you mean fno"),
        (["--model", "fno", "--model", "fno"], "--model names an operator twice: fno, fno"),
        (
            [*MODELS, "--set", "fno.data.samples=3"],
            "operators of a study share the data, those of fno differ",
        ),
        ([*MODELS, "--set", "fno.widht=4"], "widht"),
        ([*MODELS, "--set", "fno.training.seed=4"], "training.seed cannot be set"),
        ([*MODELS, "--set", "fno={training={seed=4}}"], "training.seed cannot be set"),
        ([*MODELS, "--set", "fno={data={samples=3}}"], "share the data, those of fno differ"),
        (["--set", "noise.on=labels"], "noise.on"),
        (
            ["--set", "noise.on=targets", "--test-levels", "0,0.1"],
            "--test-levels is for noise on the inputs",
        ),
        (
            ["--set", "noise.on=targets", *condition("noise.kind=relative")],
            "--condition is for noise on",
        ),
        (
            ["--set", "noise.on=targets", "--train-levels", "0,1,all"],
            "a range of levels has 0 <= low < high, got|takes one level",
        ),
        (["--set", "noise.on=targets", "--set", "noise.kind=sensors"], "sensors sets inputs"),
        (["--set", "noise.on=targets", "--method", "Tikhonov"], "not noisy targets"),
    ],
)
def test_a_wrong_request_ends_with_one_line(study, tmp_path, words, message):
    outcome = study(*replaced(["--train-levels", "0", "--test-levels", "0"], words))
    assert outcome.status == 2, outcome.err
    (line,) = outcome.err
    assert re.search(message, line), line
    assert not (tmp_path / "s").exists()


def test_a_store_of_another_kind_is_refused(experiment, tmp_path):
    url = str(tmp_path / "b.zarr")
    generate(load_recipe("burgers-quick").with_overrides({"samples": 12}), url, workers=1)
    with pytest.raises(SchemaError, match=r"is a store of burgers, .* needs one of darcy"):
        a_study(experiment, url, tmp_path / "s").run(CPU)
    assert not (tmp_path / "s").exists()
    flow = load_experiment("burgers-inverse-quick")  # which has a reflection
    with pytest.raises(SchemaError, match="reflection changes the sign of all inputs"):
        a_study(flow, url, tmp_path / "s")


def test_an_unknown_method_is_refused_before_the_store_is_generated(pdegen, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = [f"data.overrides.{key}={value}" for key, value in DATA.items()]
    words = [word for setting in small for word in ("--set", setting)]
    flow = ["--set", "training.loss.name=flow", "--set", "normalization.target=none"]
    for wrong in (["--method", "WRONG"], ["--set", "data.resolution=10"], flow):
        outcome = pdegen("study", "noise", "darcy-inverse-quick", *SETS, *words, *wrong)
        (line,) = outcome.err
        assert outcome.status == 2, line
        assert not list(tmp_path.iterdir())


def test_methods_are_known_before_the_store_exists():
    for name, known in (("burgers-inverse-quick", "'maximum a posteriori', 'Tikhonov', 'none'"),
                        ("darcy-inverse-quick", "'total variation'")):  # fmt: skip
        experiment = load_experiment(name)
        check_methods(experiment, ("Tikhonov",), None)
        with pytest.raises(SchemaError, match=f"unknown method 'WRONG': known: {known}"):
            check_methods(experiment, ("WRONG",), None)
    flow = load_experiment("burgers-inverse-quick")
    with pytest.raises(SchemaError, match="holds no averages over cells"):
        check_methods(flow, (), 16)
    with pytest.raises(SchemaError, match="burgers-quick does not learn u -> a"):
        check_methods(load_experiment("burgers-quick"), ("Tikhonov",), None)


def test_a_store_without_a_law_has_no_classical_methods(pdegen, study, store, tmp_path):
    """Of a published file nobody knows the law of the coefficient, which is the prior."""
    mat, url, held = tmp_path / "d.mat", tmp_path / "again.zarr", open_sealed(store)
    a, u = (held.values(name, range(20)) for name in ("a", "u"))
    savemat(mat, {"coeff": a, "sol": u})
    sizes = ("train=12", "validation=4", "test=4")
    split = [word for size in sizes for word in ("--split", size)]
    assert pdegen("import", mat, "--out", url, *split).status == 0
    levels = ("--train-levels", "0", "--test-levels", "0")
    refused = study(*levels, "--method", "Tikhonov", data=url)
    (line,) = refused.err
    assert (refused.status, (tmp_path / "s").exists()) == (2, False)
    assert "again.zarr has no recipe, and classical methods need the distribution" in line
    outcome = study(*levels, data=url)
    assert outcome.status == 0
    assert sum(line.startswith("no classical methods: ") for line in outcome.err) == 1
    assert "none: " in (tmp_path / "s" / "report.md").read_text()


def test_levels_as_words():
    assert parse_levels("0, 0.05,1e-1") == (0.0, 0.05, 0.1)
    assert parse_trained("0.02, all", (0.05, 0.1)) == (0.02, (0.02, 0.1))
    assert parse_trained("all", (0.05, 0.0)) == ((0.0, 0.05),)
