"""A small test set: its files, the scores of known answers, and answers that are refused."""

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pdegen.recipe import load_recipe
from pdegen.sampling import noise as noise_module
from pdegen.sampling.noise import DrawnSensors, ProductSensors
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.training import train
from pipelines.studies import answers as answers_module
from pipelines.studies import leaderboard, scores, testset
from pipelines.studies.answers import Answers, ClassicalAnswers, OperatorAnswers
from pipelines.studies.leaderboard import paired_interval, pool, scored
from pipelines.studies.scores import block_means
from pipelines.studies.testset import Mark, TestSet, TestSetFolder, digest_of, make_testset
from tests.once import once

N = 27  # cells along each axis
SMALL = {
    "tiny-full": ProductSensors((N, N), tuple(range(0, N, 2)), "tests"),
    "tiny-scatter": DrawnSensors((N, N), 60, 1, "tests"),
}
RECIPE = """
name = "tiny-darcy"
summary = "Darcy"
samples = 220
seed = 0
shard = 20
[problem]
equation = "darcy"
source = 1.0
resolution = 27
[problem.field]
law = "neumann-gaussian"
sigma = 3.0
tau = 3.0
alpha = 2.0
modes = 27
[problem.coefficient]
kind = "two-phase"
above = 12.0
below = 3.0
[problem.solver]
method = "finite-volume"
refinement = 3
[splits]
train = 200
validation = 10
test = 10
"""
SET = """
name = "tiny"
summary = "From noisy pressures to two phases"
recipe = "{recipe}"
seed = 7
known = 60
cells = 9
core = ["full-0.01", "scatter-0.01"]
[truths.core]
samples = 16
validation = 6
[truths.second]
samples = 16
validation = 6
overrides = {{ "problem.solver" = {{ method = "bilinear" }} }}
[truths.contrast]
samples = 16
validation = 6
overrides = {{ "problem.coefficient.above" = 10.0 }}
[conditions."full-0.01"]
sensors = "tiny-full"
noise = {{ kind = "ensemble", level = 0.01 }}
[conditions."scatter-0.01"]
sensors = "tiny-scatter"
noise = {{ kind = "ensemble", level = 0.01 }}
[conditions.second]
truth = "second"
sensors = "tiny-full"
noise = {{ kind = "ensemble", level = 0.01 }}
told = {{ kind = "ensemble", level = 0.03 }}
[conditions.contrast]
truth = "contrast"
sensors = "tiny-full"
noise = {{ kind = "ensemble", level = 0.01 }}
"""
CONDITIONS = "full-0.01", "scatter-0.01", "second", "contrast"


@pytest.fixture(autouse=True)
def _sensors(monkeypatch):
    for name, sensors in SMALL.items():
        monkeypatch.setitem(noise_module.SENSORS, name, sensors)


@pytest.fixture
def declared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("declared")
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "set.toml").write_text(SET.format(recipe=folder / "recipe.toml"))
    return TestSet.load(str(folder / "set.toml"))


@pytest.fixture
def made(declared, tmp_path_factory):
    def make(folder):
        make_testset(declared, folder / "set", workers=1)

    return TestSetFolder(once(tmp_path_factory, "tiny-testset", make) / "set")


def folder_of(path, made, answers, name="mine", conditions=CONDITIONS, **facts):
    path.mkdir()
    (path / "method.toml").write_text(
        f'name = "{name}"\n' + "".join(f"{key} = {json.dumps(v)}\n" for key, v in facts.items())
    )
    for condition in conditions:
        np.savez(path / f"{condition}.npz", **answers(made.upper(condition)))
    return path


def truth(upper):
    return {"a": np.where(upper, 12.0, 3.0)}


def scores_of(folder):
    """Means of a measure, by method, condition and measure."""
    rows = list(csv.DictReader((folder / "scores.csv").read_text().splitlines()))
    return {
        (method, condition, measure): np.mean([
            float(row[measure])
            for row in rows
            if (row["method"], row["condition"]) == (method, condition)
        ])
        for method, condition in {(row["method"], row["condition"]) for row in rows}
        for measure in ("misclassified", "crps", "errors")
    }  # fmt: skip


@pytest.fixture
def score(pdegen, made, tmp_path):
    def called(*methods, out="board", **words):
        options = [
            word for key, value in words.items()
            for word in ((f"--{key}",) if value is None else (f"--{key}", value))
        ]  # fmt: skip
        return pdegen("score", made.path, *methods, "--out", tmp_path / out, *options)

    return called


# the set


def test_data_are_the_solutions_at_the_sensors_with_the_noise_of_the_level(made):
    upper, data = made.upper("full-0.01"), made.data("full-0.01")
    assert upper.shape == (10, N, N)
    assert data.number.tolist() == list(range(6, 16))
    recipe = load_recipe(made.declared.recipe).with_overrides({"seed": 7})
    values = recipe.problem.compute(7, range(6, 16))
    assert ((values["a"] > 3) == upper).all()
    off = data.values - values["u"][:, data.row, data.column]
    assert np.std(off / data.sigma) == pytest.approx(0.01, rel=0.1)


def test_a_sensor_of_two_sets_has_the_same_noise(made):
    full, scatter = made.data("full-0.01"), made.data("scatter-0.01")
    shared = {(r, c): k for k, (r, c) in enumerate(zip(full.row, full.column, strict=True))}
    pairs = [
        (k, shared[place])
        for k, place in enumerate(zip(scatter.row, scatter.column, strict=True))
        if place in shared
    ]
    assert len(pairs) > 2
    for k, other in pairs:
        assert (scatter.values[:, k] == full.values[:, other]).all()


def test_the_second_solver_has_the_same_phases_and_other_pressures(made):
    assert (made.upper("second") == made.upper("full-0.01")).all()
    first, second = made.data("full-0.01").values, made.data("second").values
    off = np.linalg.norm(first - second) / np.linalg.norm(first)
    assert 1e-5 < off < 0.02


def test_validation_data_have_the_noise_that_methods_are_told(made):
    of = {name: made.data(name, "validation").values for name in ("full-0.01", "second")}
    clean = load_recipe(made.declared.recipe).problem.compute(7, range(6))["u"]
    data = made.data("second", "validation")
    ratio = [
        np.std((of[name] - clean[:, data.row, data.column]) / data.sigma)
        for name in ("full-0.01", "second")
    ]
    assert ratio[1] / ratio[0] == pytest.approx(3, rel=0.02)


def test_a_set_is_made_again_with_the_same_digest_and_damage_is_seen(made, declared, tmp_path):
    again = make_testset(declared, tmp_path / "again", workers=2)
    assert again.digest == made.digest
    assert list(again.faults()) == []
    file = tmp_path / "again" / "data" / "second.npz"
    arrays = dict(np.load(file))
    arrays["values"] = arrays["values"] + 1e-4
    np.savez(file, **arrays)
    assert ["values has another SHA-256" in line for line in again.faults()] == [True]


def test_no_test_sample_is_a_validation_sample(made):
    for condition in CONDITIONS:
        assert set(made.data(condition).number) & set(range(6)) == set()


def test_damage_ends_in_one_line(made, pdegen, declared, tmp_path):
    broken = make_testset(declared, tmp_path / "broken", workers=1).path
    file = broken / "data" / "contrast.npz"
    arrays = dict(np.load(file))
    np.savez(file, **{name: arrays[name] for name in arrays if name != "sigma"})
    assert ["sigma has another SHA-256" in line for line in TestSetFolder(broken).faults()] == [
        True
    ]
    content = bytearray((broken / "data" / "second.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (broken / "data" / "second.npz").write_bytes(content)
    shutil.rmtree(broken / "stores" / "contrast.zarr")
    assert len(list(TestSetFolder(broken).faults())) == 3
    outcome = pdegen("score", broken, "constant", "--out", tmp_path / "board")
    assert (outcome.status, len(outcome.err)) == (2, 1)
    assert "is damaged" in outcome.err[0]
    assert not (tmp_path / "board").exists()
    file = tmp_path / "s.toml"
    file.write_text(SET.format(recipe=declared.recipe))
    outcome = pdegen("testset", file, "--out", broken, "--verify")
    assert (outcome.status, len(outcome.err)) == (1, 4)
    outcome = pdegen("testset", file, "--out", made.path, "--verify")
    assert (outcome.status, outcome.out) == (0, [f"{made.path}: whole, digest {made.digest}"])


def test_verify_tells_rounding_from_another_set(made, pdegen, declared, monkeypatch, tmp_path):
    monkeypatch.setattr(testset, "_SHIPPED", tmp_path)
    file, shipped = tmp_path / "s.toml", tmp_path / f"{made.declared.name}.json"
    file.write_text(SET.format(recipe=declared.recipe))
    marks = {key: Mark.of(made.arrays(key.rpartition("/")[0])[key.rpartition("/")[2]])
             for key in made.marks}  # fmt: skip

    def verified(**changed):
        content = {k: astuple(changed.get(k.replace("/", "_"), mark)) for k, mark in marks.items()}
        shipped.write_text(json.dumps(content))
        return pdegen("testset", file, "--out", made.path, "--verify")

    assert verified().out[1] == "0 arrays differ from the shipped set, by rounding"
    values = made.data("second").values
    rounded = Mark.of(values * np.float32(1 + 2e-7))
    assert verified(data_second_values=rounded).out[1].startswith("1 arrays differ")
    for other in (values[::-1], values * np.float32(1 + 1e-4)):
        outcome = verified(data_second_values=Mark.of(other))
        assert (outcome.status, len(outcome.err)) == (1, 1)
        assert "1 arrays are not those shipped, first data/second/values" in outcome.err[0]


def test_the_shipped_marks_are_those_of_the_declared_conditions():
    """`pdegen testset inverse-darcy-1 --verify` compares the values."""
    declared = TestSet.load("inverse-darcy-1")
    marked = json.loads((testset._SHIPPED / "inverse-darcy-1.json").read_text())
    expected = {f"{part}/{name}/{word}" for part in ("data", "validation")
                for name in declared.conditions for word in ("values", "sigma")}  # fmt: skip
    assert {*marked} == expected | {"validation/truth/upper"} | {
        f"answers/{name}/upper" for name in declared.truths
    }


def test_digests_depend_on_type_shape_and_values():
    x = np.arange(6, dtype="<f4")
    others = [x.astype("<f8"), x.reshape(2, 3), x + 1]
    assert len({digest_of(v) for v in [x, *others]}) == 4
    assert digest_of(x.astype(">f4")) == digest_of(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('sensors = "tiny-full"', 'sensors = "nowhere"'), "unknown sensors 'nowhere'"),
        (('truth = "second"', 'truth = "secand"'), "unknown truth 'secand': did you mean second"),
        (('core = ["full-0.01"', 'core = ["full-1"'), "core: unknown condition 'full-1'"),
        (("[truths.core]", "[truths.care]"), "truths need one of the name 'core'"),
        (('kind = "ensemble"', 'kind = "ensembel"'), "did you mean ensemble"),
        (('method = "bilinear"', 'method = "bilnear"'), "problem.solver"),
        (("validation = 6\noverrides", "validation = 5\noverrides"), "validation must be 6, as of"),
        (
            ('kind = "ensemble", level = 0.01 }', 'kind = "blur", level = 0.01 }'),
            "blur noise depen",
        ),
        (
            ('kind = "ensemble", level = 0.01 }', 'kind = "ensemble", level = 0.01, seed = 3 }'),
            "the noise has the seed of the set",
        ),
    ],
)
def test_wrong_declarations_are_refused(tmp_path, change, message):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    text = SET.format(recipe=tmp_path / "recipe.toml")
    (tmp_path / "set.toml").write_text(text.replace(*change))
    with pytest.raises(SchemaError, match=message):
        TestSet.load(str(tmp_path / "set.toml"))


# known answers


def test_the_truth_scores_zero_and_constants_score_their_share(made, score, tmp_path):
    folder_of(tmp_path / "truth", made, truth, "the truth")
    folder_of(tmp_path / "half", made, lambda u: {"probability": np.full(u.shape, 0.5)}, "half")
    outcome = score(tmp_path / "truth", tmp_path / "half", "constant")
    assert outcome.status == 0, outcome.err
    found = scores_of(tmp_path / "board")
    for condition in CONDITIONS:
        assert found["the truth", condition, "misclassified"] == 0
        assert found["the truth", condition, "crps"] == pytest.approx(0, abs=1e-9)
        upper = made.upper(condition)
        assert found["half", condition, "misclassified"] == pytest.approx(upper.mean(), abs=1e-6)
        shares = block_means(upper.astype(float), 2)
        assert found["half", condition, "crps"] == pytest.approx(abs(shares - 0.5).mean(), rel=1e-4)
    page = (tmp_path / "board" / "report.md").read_text()
    assert "best mean rank by area: the truth: **1**" in page


def test_answers_on_coarse_cells_are_averaged_exactly(made, score, tmp_path):
    def coarse(upper):
        a = truth(upper)["a"].reshape(len(upper), 9, 3, 9, 3).mean(axis=(2, 4))
        return {"a": a}

    folder_of(tmp_path / "coarse", made, coarse)
    assert score(tmp_path / "coarse").status == 0
    found = scores_of(tmp_path / "board")["mine", "second", "misclassified"]
    upper = made.upper("second")
    majority = (coarse(upper)["a"] > 7.5).repeat(3, axis=1).repeat(3, axis=2)
    assert found == pytest.approx((majority != upper).mean(), abs=1e-6)


def test_classical_methods_answer_and_go_on(made, score, tmp_path):
    first = score("maximum a posteriori", "level set", samples=3)
    assert first.status == 0, first.err
    assert "8/8" in first.err[-1]
    found = scores_of(tmp_path / "board")
    assert found["maximum a posteriori", "full-0.01", "misclassified"] < 0.15
    assert score("maximum a posteriori", "level set", samples=3).err == []
    # the answers are a folder like any other, with the same scores
    own = tmp_path / "board" / "answers" / "maximum-a-posteriori"
    assert score(own, out="again", samples=3).status == 0
    again = scores_of(tmp_path / "again")
    for key, value in again.items():
        assert value == pytest.approx(found[key], rel=1e-12)
    (own / "full-0.01.npz").unlink()
    assert "1/1" in score("maximum a posteriori", samples=3).err[-1]


@pytest.mark.parametrize("loss", ["l2", "cross-entropy"])
def test_operators_state_probabilities_after_the_cross_entropy(made, tmp_path, loss):
    changes = {
        "data.recipe": made.declared.recipe, "data.resolution": N, "data.target_resolution": 9,
        "resolutions": [N], "noise": {"kind": "sensors", "points": "tiny-scatter", "level": 0.01},
        "model.width": 8, "model.depth": 1, "model.feedforward": 8,
        "model.heads": 2, "training.epochs": 1, "training.loss.name": loss,
        "normalization.target": "none",
    }  # fmt: skip
    experiment, run = load_experiment("darcy-inverse-quick").with_overrides(changes), tmp_path / "r"
    train(experiment, made.training, run, torch.device("cpu"))
    evaluate_run(experiment, made.training, run, torch.device("cpu"))
    answers = OperatorAnswers(made, run).answer("scatter-0.01", 3)
    scores = scored(answers, made.upper("scatter-0.01")[:3], (3.0, 12.0))
    assert (answers.probability is None) == (loss == "l2") == ("brier" not in scores)
    if answers.probability is not None:
        assert answers.a == pytest.approx(3 + 9 * answers.probability)


def test_operators_say_what_they_are_told(monkeypatch, made):
    result = SimpleNamespace(
        experiment=load_experiment("darcy-inverse-quick"),
        scores=SimpleNamespace(training_seconds=1.0, parameters=1),
    )
    monkeypatch.setattr(OperatorAnswers, "__post_init__", lambda of: None)
    told = []
    for noise in (None, {"level": 0.02}, {"kind": "student", "level": [0.0, 0.1]}):
        own = result.experiment.with_overrides({"noise": noise})
        of = OperatorAnswers(made, Path("run"))
        of.__dict__["_result"] = SimpleNamespace(experiment=own, scores=result.scores)
        told.append(of.described.told)
    assert told == [
        "training samples without noise", "training samples with ensemble noise 0.02",
        "level, training samples with student noise 0 to 0.1",
    ]  # fmt: skip


def test_conditions_whose_truths_have_the_values_of_the_recipe_are_told_them(declared):
    assert [declared.told_phases(c) for c in CONDITIONS] == [True, True, True, False]
    shipped = TestSet.load("inverse-darcy-1")
    unknown = [name for name in shipped.conditions if not shipped.told_phases(name)]
    assert unknown == ["contrast"]  # not share-out and share-far, other shares of 3 and 12


@pytest.fixture
def calibrating(made, monkeypatch):
    """Fewer calibration samples are enough, and weights have the first of them."""
    monkeypatch.setattr(leaderboard, "CALIBRATING", 3)
    monkeypatch.setattr(scores, "LEVEL", 0.7)  # rank 3 of 3 samples
    for module in (leaderboard, answers_module):
        monkeypatch.setattr(module, "TUNED_ON", 3)
    return made


def test_bands_of_every_method_with_validation_answers_are_judged(calibrating, score, tmp_path):
    made, rng = calibrating, np.random.default_rng(0)

    def unsure(upper):
        p = np.clip(upper + 0.3 * rng.standard_normal(upper.shape), 0.02, 0.98)
        return {"probability": p}

    mine = folder_of(tmp_path / "mine", made, unsure)
    plain = folder_of(tmp_path / "plain", made, truth, "plain")
    (mine / "validation").mkdir()
    known = {condition: unsure(made.validation) for condition in CONDITIONS}
    for condition, answer in known.items():
        np.savez(mine / "validation" / f"{condition}.npz", **answer)
    outcome = score(mine, plain, "level set", conformal=None, samples=4)
    assert outcome.status == 0, outcome.err
    assert any("level set on second, validation" in line for line in outcome.err)
    lines = list(csv.DictReader((tmp_path / "board" / "scores.csv").read_text().splitlines()))
    of = {(line["method"], line["condition"], int(line["sample"])): line for line in lines}
    assert of["plain", "second", 6]["band_points"] == ""
    assert of["level set", "full-0.01", 6]["band_all_width"] != ""
    q = 1 - np.where(made.validation, known["second"]["probability"],
                     1 - known["second"]["probability"])[3:]  # fmt: skip
    q = q.max(axis=0)  # the third of three
    p = np.load(mine / "second.npz")["probability"][0]
    line, upper = of["mine", "second", 6], made.upper("second")[0]
    held = np.mean(1 - np.where(upper, p, 1 - p) <= q)
    assert float(line["band_points"]) == pytest.approx(held, rel=1e-5)
    size = np.mean((1 - p <= q).astype(int) + (p <= q))
    assert float(line["band_points_width"]) == pytest.approx(size, rel=1e-5)
    page = (tmp_path / "board" / "report.md").read_text()
    assert "## Conformal bands" in page
    assert "second half of the validation samples" in page
    assert score(mine, out="again").status == 0
    assert "Conformal" not in (tmp_path / "again" / "report.md").read_text()


def test_bands_of_seeds_together_need_the_validation_answers_of_all(calibrating, score, tmp_path):
    for seed in (0, 1):
        folder = folder_of(tmp_path / f"s{seed}", calibrating, truth, seed=seed)
        (folder / "validation").mkdir()
        np.savez(folder / "validation" / "second.npz", **truth(calibrating.validation))
    pooled = "mine, all seeds together"
    for absent in (False, True):
        if absent:
            (tmp_path / "s1" / "validation" / "second.npz").unlink()
        assert score(tmp_path / "s0", tmp_path / "s1", conformal=None).status == 0
        lines = csv.DictReader((tmp_path / "board" / "scores.csv").read_text().splitlines())
        of = {line["band_all"] for line in lines
              if (line["method"], line["condition"]) == (pooled, "second")}  # fmt: skip
        assert (of == {""}) == absent


def test_a_stated_deviation_is_the_probability_of_a_gaussian_law(made, score, tmp_path):
    def stated(upper):
        return {"a": np.where(upper, 8.0, 7.0), "deviation": np.full(upper.shape, 0.5)}

    folder_of(tmp_path / "s", made, stated)
    folder_of(tmp_path / "p", made, lambda u: {"probability": np.where(u, 0.8413447, 0.1586553)},
              "as probability")  # fmt: skip
    assert score(tmp_path / "s", tmp_path / "p").status == 0
    lines = list(csv.DictReader((tmp_path / "board" / "scores.csv").read_text().splitlines()))
    brier = {name: [float(line["brier"]) for line in lines if line["method"] == name]
             for name in ("mine", "as probability")}  # fmt: skip
    assert brier["mine"] == pytest.approx(brier["as probability"], rel=1e-4)


def test_classical_methods_say_what_they_are_told(made):
    """The law of the coefficient is for maximum a posteriori alone; one of these needs no level."""
    told = {
        name: ClassicalAnswers(made, name).described.told
        for name in ("level set", "maximum a posteriori", "maximum a posteriori, level estimated")
    }
    assert [*told.values()] == [
        "level, kind, phases", "level, kind, prior, phases", "kind, prior, phases",
    ]  # fmt: skip


def test_a_flow_answers_by_draws_of_numbered_samples(made, tmp_path):
    changes = {
        "data.recipe": made.declared.recipe, "data.resolution": N, "data.target_resolution": 9,
        "resolutions": [N], "noise": {"kind": "sensors", "points": "tiny-scatter", "level": 0.01},
        "model.name": "fno", "model.width": 4, "model.modes": 2, "model.depth": 1,
        "training.epochs": 1, "training.loss": {"name": "flow", "members": 19, "steps": 1},
    }  # fmt: skip
    experiment, run = load_experiment("darcy-inverse-quick").with_overrides(changes), tmp_path / "r"
    train(experiment, made.training, run, torch.device("cpu"))
    evaluate_run(experiment, made.training, run, torch.device("cpu"))
    answers = OperatorAnswers(made, run)
    two, three = (answers.answer("scatter-0.01", count) for count in (2, 3))
    assert three.draws is not None
    assert three.draws.shape == (19, 3, 9, 9)
    assert np.array_equal(two.draws, three.draws[:, :2])
    assert three.a == pytest.approx(three.draws.mean(axis=0))
    assert three.probability == pytest.approx((three.draws > 7.5).mean(axis=0))
    scores = scored(three, made.upper("scatter-0.01")[:3], (3.0, 12.0))
    assert {"crps", "coverage", "width", "brier"} <= scores.keys()
    assert answers.described.name == "fno, flow"  # no seed of the FNO that predicts
    # seeds of a training draw other x₀, so that their draws together are independent
    second = experiment.with_overrides({"training.seed": 1})
    answers.__dict__["_result"] = replace(answers._result, experiment=second)
    assert not np.array_equal(answers.answer("scatter-0.01", 2).draws, two.draws)


def test_ten_lines_of_numpy_are_a_method(made, pdegen, tmp_path):
    """Nothing of pdegen is imported where the answers are made."""
    program = Path(__file__).parents[3] / "docs" / "examples" / "nearest_sample.py"
    lines = program.read_text("utf-8").partition("import numpy as np\n")[2].split("\n")
    assert len(list(filter(None, lines))) <= 10
    words = [sys.executable, "-I", program, made.path, tmp_path / "mine"]
    subprocess.run(words, check=True, cwd=tmp_path)
    outcome = pdegen("score", made.path, tmp_path / "mine", "constant", "--out", tmp_path / "b")
    assert outcome.status == 0, outcome.err
    found = scores_of(tmp_path / "b")
    for condition in CONDITIONS:
        of = found["nearest sample", condition, "crps"], found["constant", condition, "crps"]
        assert of[0] < of[1]


# answers that are refused


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (lambda u: {"a": truth(u)["a"][:-1]}, "a has 9 samples, expected 10"),
        (lambda u: {"a": truth(u)["a"][:, :-1]}, r"a must have the shape \(samples, m, m\), got"),
        (lambda u: {"a": np.where(np.arange(10)[:, None, None] == 4, np.nan, truth(u)["a"])},
         "a is not finite in row 4"),
        (lambda u: {"probability": 2.0 * u}, r"probability must be in \[0, 1\], got 0 to 2"),
        (lambda u: {"draws": truth(u)["a"]}, "draws must have the shape .members, samples, m, m."),
        (lambda u: {"b": truth(u)["a"]}, "unknown array b: known are a, probability, deviation"),
        (lambda u: {"seconds": np.ones(10)}, "has no array a, probability or draws"),
        (lambda u: {**truth(u), "number": np.arange(10)}, "answers of other samples"),
        (lambda u: {**truth(u), "seconds": -np.ones(10)}, "seconds must be >= 0, got -1"),
        (lambda u: {**truth(u), "deviation": np.zeros(u.shape)}, "deviation must be > 0 on the c"),
        (lambda u: {"deviation": np.ones(u.shape)}, "has no array a, probability or draws"),
        (lambda u: {"a": np.zeros((10, 0, 0))}, "a must have the shape"),
        (lambda u: {"a": truth(u)["a"] + 1j}, "a must have real numbers, got complex128"),
        (lambda u: {"a": truth(u)["a"].astype(str)}, "a must have real numbers, got <U"),
        (lambda u: {"draws": np.zeros((0, 10, 3, 3))}, "draws must have the shape"),
        (lambda u: {**truth(u), "number": np.array(3)}, "answers of other samples"),
    ],
)  # fmt: skip
def test_answers_that_do_not_fit_are_refused_in_one_line(made, score, tmp_path, answers, message):
    folder_of(tmp_path / "mine", made, answers)
    outcome = score(tmp_path / "mine")
    assert (outcome.status, len(outcome.err)) == (2, 1)
    assert re.search(message, outcome.err[0])
    assert not (tmp_path / "board").exists()


def test_answers_of_another_set_and_doubled_names_are_refused(made, score, tmp_path):
    folder_of(tmp_path / "pooled", made, truth, pooled=-3)
    assert "pooled: must be at least 1, got -3" in score(tmp_path / "pooled").err[0]
    assert "--conformal needs 32 validation samples" in score("level set", conformal=None).err[0]
    folder_of(tmp_path / "other", made, truth, testset="0123")
    assert "answers another test set" in score(tmp_path / "other").err[0]
    for name in ("one", "two"):
        folder_of(tmp_path / name, made, truth)
    assert (
        "with the seed 0 answer full-0.01: give" in score(tmp_path / "one", tmp_path / "two").err[0]
    )
    folder_of(tmp_path / "named", made, truth, "level set")
    assert "is a name of pdegen's" in score(tmp_path / "named").err[0]
    (tmp_path / "empty").mkdir()
    assert "empty is not a finished run" in score(tmp_path / "empty").err[0]
    assert (
        "is no folder and no classical method: did you mean level set"
        in (score("level sat").err[0])
    )
    assert not (tmp_path / "board").exists()  # nothing is written before a refusal


def test_files_that_are_no_arrays_are_refused_in_one_line(made, score, tmp_path):
    for name, content in {"empty": b"", "half": b"PK\x03\x04rest", "text": b"words"}.items():
        folder_of(tmp_path / name, made, truth)
        (tmp_path / name / "full-0.01.npz").write_bytes(content)
        outcome = score(tmp_path / name)
        assert (outcome.status, len(outcome.err)) == (2, 1)
        assert "cannot read" in outcome.err[0]


def test_folders_of_one_seed_may_answer_different_conditions(made, score, tmp_path):
    for name, conditions in {"a": ["full-0.01"], "b": ["scatter-0.01"]}.items():
        folder_of(tmp_path / name, made, truth, "ours", conditions)
    assert score(tmp_path / "a", tmp_path / "b", "constant").status == 0
    found = scores_of(tmp_path / "board")
    assert found["ours", "full-0.01", "crps"] == found["ours", "scatter-0.01", "crps"] == 0
    lines = csv.DictReader((tmp_path / "board" / "differences.csv").read_text().splitlines())
    means = {(row["method"], row["condition"], row["measure"]): row for row in lines}
    row = means["constant", "full-0.01", "misclassified"]
    share = found["constant", "full-0.01", "misclassified"]
    assert float(row["difference"]) == pytest.approx(share, rel=1e-5)
    assert 0 < float(row["low"]) < share < float(row["high"])


def test_a_value_that_methods_are_not_told_does_not_count(made, score, tmp_path):
    """The exact coefficient of the contrast 10/3 has the phases of the one of 12/3."""
    folder_of(tmp_path / "exact", made, lambda u: {"a": np.where(u, 10.0, 3.0)})
    assert score(tmp_path / "exact").status == 0
    found = scores_of(tmp_path / "board")
    assert found["mine", "contrast", "crps"] == found["mine", "contrast", "misclassified"] == 0
    assert found["mine", "second", "crps"] > 0.05


def test_shuffled_samples_are_noticed(made, score, tmp_path):
    folder_of(tmp_path / "shuffled", made, lambda u: {"a": truth(u)["a"][::-1]})
    assert score(tmp_path / "shuffled").status == 0
    page = (tmp_path / "board" / "report.md").read_text()
    assert "are the samples shuffled?" in page


@pytest.mark.parametrize(
    ("names", "seeds", "message"),
    [
        (["ours", "ours"], [1, 1], "two folders of 'ours' with the seed 1 answer full-0.01"),
        (["ours", "ours", "ours, all seeds together"], [0, 1, 0], "is the name of several seeds"),
        (["my method"] * 2 + ["My-Method"] * 2, [0, 1, 0, 1], "names of methods must differ"),
    ],
)
def test_names_that_cannot_be_told_apart_are_refused(made, score, tmp_path, names, seeds, message):
    folders = [
        folder_of(tmp_path / f"m{k}", made, truth, name, ["full-0.01"], seed=seed)
        for k, (name, seed) in enumerate(zip(names, seeds, strict=True))
    ]
    outcome = score(*folders)
    assert (outcome.status, len(outcome.err)) == (2, 1)
    assert message in outcome.err[0]
    assert not (tmp_path / "board").exists()


def test_folders_that_share_no_condition_are_not_pooled(made, score, tmp_path):
    for name in ("full-0.01", "second"):
        folder_of(tmp_path / name, made, truth, conditions=[name])
    assert score(tmp_path / "full-0.01", tmp_path / "second").status == 0
    assert {method for method, *_ in scores_of(tmp_path / "board")} == {"mine"}


def test_seeds_are_one_method_and_missing_conditions_leave_it_without_a_rank(made, score, tmp_path):
    rng = np.random.default_rng(0)

    def noisy(upper):
        wrong = rng.random(upper.shape) < 0.1
        return truth(upper ^ wrong)

    for seed in (0, 1, 2):
        folder_of(tmp_path / f"s{seed}", made, noisy, "ours", seed=seed)
    folder_of(tmp_path / "part", made, truth, "part", conditions=["full-0.01"])
    outcome = score(*(tmp_path / f"s{seed}" for seed in (0, 1, 2)), tmp_path / "part")
    assert outcome.status == 0, outcome.err
    page = (tmp_path / "board" / "report.md").read_text()
    assert "ours (3 seeds)" in page
    found = scores_of(tmp_path / "board")
    assert found["ours", "second", "misclassified"] == pytest.approx(0.1, abs=0.01)
    (line,) = [row for row in page.splitlines() if row.startswith("| part | ")][:1]
    assert line.split("|")[2].strip() == ""
    pooled = "ours, all seeds together"
    wrong = 3 * 0.1**2 * 0.9 + 0.1**3  # of the majority of three
    assert found[pooled, "second", "misclassified"] == pytest.approx(wrong, abs=0.005)
    assert found[pooled, "second", "crps"] < found["ours", "second", "crps"]
    assert f"{pooled} (one seed)" not in page


def test_seeds_together_are_draws_or_a_mean_probability_on_the_finest_cells():
    p = np.array([[[0.2, 0.4], [0.6, 0.8]]])
    fine, coarse = np.kron(1 - p, np.ones((2, 2))), p
    found = pool([Answers(fine, seconds=np.ones(1)), Answers(coarse, seconds=np.full(1, 2.0))])
    assert found.a == pytest.approx(np.full((1, 4, 4), 0.5))
    assert found.draws is not None
    assert found.draws[:, 0, 0, 0] == pytest.approx([0.8, 0.2])
    assert found.seconds == pytest.approx(3.0)
    drawn = Answers(fine, draws=np.stack([fine, fine + 1]))
    both = pool([drawn, Answers(coarse)]).draws
    assert both is not None
    assert both[:, 0, 0, 0] == pytest.approx([0.8, 0.2])  # as many draws of each seed
    of_flows = [Answers(fine, fine, np.stack([fine, fine + k])) for k in (1, 2)]
    flows = pool(of_flows)  # both state a probability, and their draws remain
    assert flows.probability == pytest.approx(fine)
    assert flows.draws is not None
    assert flows.draws[:, 0, 0, 0] == pytest.approx([0.8, 1.8, 0.8, 2.8])
    stated = pool([Answers(p, probability=p), Answers(p, probability=1 - p)])
    assert (stated.draws, stated.probability) == (None, pytest.approx(np.full((1, 2, 2), 0.5)))


def test_seeds_of_a_flow_keep_their_probability_and_all_draws():
    p, cells = np.full((1, 2, 2), 0.5), np.ones((2, 2))
    draws = np.stack([3 * np.kron(p, cells), 12 * np.kron(p, cells)])  # on finer cells than p
    found = pool([Answers(p, p, draws), Answers(p, p / 2, draws[:1])])
    assert found.probability == pytest.approx(np.full((1, 4, 4), 0.375))
    assert found.draws is not None
    assert found.draws[:, 0, 3, 3] == pytest.approx([1.5, 1.5])  # as many draws of each seed


def test_paired_intervals_are_those_of_the_mean_difference():
    rng = np.random.default_rng(3)
    common = rng.standard_normal((1, 200))
    first, second = common + 0.1 * rng.standard_normal((1, 200)), common + 0.02
    mean, low, high = paired_interval(first, second)
    assert mean == pytest.approx((first - second).mean())
    half = 1.96 * np.std(first - second) / 200**0.5
    assert (high - low) / 2 == pytest.approx(half, rel=0.05)
    seeds = first + np.array([[-1.0], [0.0], [1.0]])
    _, low, high = paired_interval(seeds, second)
    assert high - low > 1  # another seed could have another mean
