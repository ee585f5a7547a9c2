"""Samples whose target is 0 have no relative error: they are named, and every mean leaves them out,
in a training, a search, a table, a comparison, and after `--resume`."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data import read_pairs
from operators.training.evaluate import errors_of
from pdegen.files import read_json
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pipelines.config.benchmark import Benchmark
from pipelines.config.experiment import load_experiment
from pipelines.reports.benchmark_report import write_benchmark_report
from pipelines.reports.comparison_report import write_comparison
from pipelines.reports.report import write_report
from pipelines.runs.comparison import read_comparison
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.score import measures_of
from pipelines.runs.training import train
from pipelines.studies.benchmark import BenchmarkRun

CPU = torch.device("cpu")
SPLITS = {"train": 8, "validation": 4, "test": 4}
BURGERS = {"data.resolution": 16, "resolutions": [16], "training.epochs": 6, "training.batch": 4}
SMALL = {**BURGERS, "model.width": 8, "model.depth": 1, "model.feedforward": 8, "model.modes": 4,
         "model.decoder_width": 8}  # fmt: skip
FNO = {"name": "fno", "width": 4, "depth": 1, "modes": 4}


def store_with(folder, *zero):
    """Samples a -> u of smooth functions on a circle; the targets of some are 0."""
    x, rng = np.arange(16) / 16, np.random.default_rng(0)
    waves = np.stack([np.cos(2 * np.pi * k * x + k) for k in range(1, 4)])
    a = rng.standard_normal((16, 3)) @ waves
    u = np.roll(a, 2, axis=1) + 0.1 * a**2
    u[list(zero)] = 0.0
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in (("a", a), ("u", u)):
        np.save(folder / f"{name}.npy", values.astype("f4"))
    declared = ImportOptions(input="a", target="u", grid="periodic", splits=SPLITS)
    files = [folder / "a.npy", folder / "u.npy"]
    return import_files(files, str(folder / "store.zarr"), declared).url


def store_of(folder, change):
    """The samples of `store_with`, of which `change` changes the targets (16, 16) in place."""
    store_with(folder)
    u = np.load(folder / "u.npy")
    change(u)
    np.save(folder / "u.npy", u)
    options = ImportOptions(input="a", target="u", grid="periodic", splits=SPLITS)
    files = [folder / "a.npy", folder / "u.npy"]
    return import_files(files, str(folder / "changed.zarr"), options).url


def make_tiny(u):
    u[13] *= 1e-25


def make_constant(*samples):
    def change(u):
        u[list(samples)] = 1.5

    return change


def declared(**changes):
    dataset = {"experiment": "benchmark-burgers-quick", "overrides": BURGERS}
    return Benchmark.parse({
        "name": "small", "summary": "One operator", "seeds": 1, "datasets": {"burgers": dataset},
        "operators": {"FNO": {"model": FNO}}, **changes,
    }, "small")  # fmt: skip


@pytest.fixture(scope="module")
def with_zeros(tmp_path_factory):
    """Sample 9 of the validation and sample 13 of the test split are 0."""
    return store_with(tmp_path_factory.mktemp("zeros"), 9, 13)


@pytest.fixture(scope="module")
def finished(with_zeros, tmp_path_factory):
    run = BenchmarkRun(declared(), {"burgers": with_zeros}, tmp_path_factory.mktemp("b") / "run")
    run.run(CPU)
    write_benchmark_report(run, CPU)
    return run


def test_the_best_epoch_is_that_of_the_samples_that_have_an_error(finished, with_zeros):
    (row,) = finished.rows()
    history = finished.history(row)
    assert all(math.isfinite(epoch.score) for epoch in history)
    lowest = min(history, key=lambda epoch: epoch.score)
    assert row.epoch == lowest.epoch > 1
    training = finished.training_of(row)
    pairs = read_pairs(with_zeros, "validation", 16)
    with torch.no_grad():
        p = training.predictor(CPU).eval()(pairs.a, pairs.x)
    known = torch.tensor([0, 2, 3])  # sample 9 is the second
    size = torch.linalg.vector_norm(pairs.u[known, :, 0].double(), dim=1)
    off = torch.linalg.vector_norm((p - pairs.u)[known, :, 0].double(), dim=1)
    assert lowest.score == pytest.approx(float((off / size).mean()), rel=1e-6)


def test_the_table_has_the_mean_of_the_others_and_names_what_it_leaves_out(finished):
    (row,) = finished.rows()
    assert np.isnan(row.errors).tolist() == [False, True, False, False]
    (line,) = csv.DictReader((finished.folder / "table.csv").read_text("utf-8").splitlines())
    known = [row.errors[i] for i in (0, 2, 3)]
    assert float(line["mean"]) == pytest.approx(np.mean(known))
    assert float(line["worst"]) == max(known)
    assert float(line["median"]) == np.median(known)
    assert line["samples"] == "3"
    assert 0 < float(line["trivial"]) < 10
    text = (finished.folder / "report.md").read_text("utf-8")
    assert "Sample 13 has no relative error, because its target is 0. Means leave it out." in text


def test_a_run_says_what_it_leaves_out_and_its_pictures_are_drawn(with_zeros, tmp_path):
    experiment = load_experiment("benchmark-burgers-quick").with_overrides(SMALL)
    folders = [tmp_path / "one", tmp_path / "two"]
    for seed, folder in enumerate(folders):
        own = experiment.with_overrides({"training.seed": seed, "training.epochs": 2})
        train(own, with_zeros, folder, CPU)
        (summary,) = evaluate_run(own, with_zeros, folder, CPU)["results"]
        assert summary["left_out"] == [13]
        assert math.isfinite(summary["mean"])
    text = write_report(folders[0], with_zeros, CPU).with_suffix(".md").read_text("utf-8")
    assert "Sample 13 has no relative error" in text
    found = read_comparison(folders, tmp_path / "out", CPU)
    write_comparison(found, tmp_path / "out")
    kept = read_json(tmp_path / "out" / "comparison.json")
    assert all(math.isfinite(one["mean"]) for one in kept["variants"])
    assert all(one["samples"] == 3 for one in kept["differences"].values())
    assert "Sample 13 has no relative error" in (tmp_path / "out" / "report.md").read_text("utf-8")


@pytest.mark.usefixtures("unpainted")
def test_a_sample_that_dominates_the_mean_is_named_with_its_share(tmp_path, pdegen):
    """By every command that prints the mean."""
    store = store_of(tmp_path / "tiny", make_tiny)
    sets = [f"--set={key}={json.dumps(value)}" for key, value in {**SMALL, "epochs": 1}.items()]
    experiment = ["benchmark-burgers-quick", "--data", store, *sets]
    runs = ["one", "two"]
    for seed, out in enumerate(runs):
        outcome = pdegen("train", *experiment, f"--set=training.seed={seed}", "--out", out)
        assert outcome.status == 0, outcome.err
        outcome = pdegen("evaluate", f"{out}/best.safetensors", "--data", store)
        remark = [line for line in outcome.out if line.startswith("Sample 13 has 100 % of the sum")]
        assert len(remark) == 1
        assert "of the errors of 4 samples: its error is" in remark[0]
    run = BenchmarkRun(declared(), {"burgers": store}, tmp_path / "b")
    run.run(CPU)
    page = write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")
    assert "Sample 13 has 100 % of the sum of the errors of 4 samples" in page


@pytest.mark.parametrize("samples", [range(16), [3, 5]])
def test_constant_targets_are_named_as_what_a_loss_of_derivatives_lacks(tmp_path, pdegen, samples):
    store = store_of(tmp_path, make_constant(*samples))
    words = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]
    words += ["--set=training.loss.name=h1", "--set=normalization.target=none"]
    outcome = pdegen("train", "benchmark-burgers-quick", "--data", store, "--out", "run", *words)
    assert outcome.status != 0
    expected = "the target is constant and its derivative 0: use a loss without derivatives"
    if len(samples) == 2:
        expected = "the target is constant in training samples; a loss of derivatives divides by 0"
        expected += ": 3, 5"
    assert expected in outcome.err[-1]


@pytest.mark.parametrize(("split", "zero"), [("validation", range(8, 12)), ("test", range(12, 16))])
def test_a_split_without_any_error_is_refused_before_anything(refused, tmp_path, split, zero):
    store = store_with(tmp_path, *zero)
    words = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]
    said = refused("train", "benchmark-burgers-quick", "--data", store, "--out", "run", *words)
    assert f"split {split} of {store}: the targets of all 4 samples are 0" in said


def test_a_training_sample_that_is_0_is_named(tmp_path, pdegen):
    store = store_with(tmp_path, 3)
    words = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]
    words += ["--set=training.loss.name=l2"]
    outcome = pdegen("train", "benchmark-burgers-quick", "--data", store, "--out", "run", *words)
    assert outcome.status != 0
    assert (
        "the target is 0 in training samples, for which no relative loss exists: 3"
        in (outcome.err[-1])
    )


def test_a_prediction_that_is_not_finite_is_infinitely_wrong_and_not_left_out(with_zeros):
    pairs = replace(read_pairs(with_zeros, "test", 16))
    p = pairs.u.clone()
    p[0, 3], p[1, 3] = math.nan, math.inf  # the second has no error whatever is predicted
    assert errors_of(p, pairs.all, pairs)[:, 0].tolist() == pytest.approx(
        [math.inf, math.nan, 0.0, 0.0], nan_ok=True
    )
    for name, errors in measures_of(p, pairs.all, pairs).items():
        assert errors[0] == math.inf, name
        assert errors[1].isnan(), name
        assert errors[2:].isfinite().all(), name
