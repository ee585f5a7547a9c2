"""Trajectories of a vorticity: rollouts, states at a time, their scores, reports and refusals."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from operators.data import Rollout
from operators.norms import relative_error
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.transforms import Extent, Predictor
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.generation.generate import generate
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.benchmark import Benchmark
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.reports.benchmark_report import write_benchmark_report
from pipelines.reports.report import facts, write_report
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate, evaluate_run
from pipelines.runs.finished import read_finished
from pipelines.runs.reproduction import toml
from pipelines.runs.score import NORMS, Score, measures_of
from pipelines.runs.training import train
from pipelines.studies.benchmark import BenchmarkRun
from tests.once import once
from tests.pdegen.formats.files import mat73
from tests.pipelines.conftest import CPU, in_memory

TIMES = [0.5 * k for k in range(1, 7)]
RECIPE = {
    "samples": 12, "shard": 12, "problem.times": TIMES, "problem.resolution": 16,
    "initial.modes": 5, "solver.resolution": 24, "solver.dt": 0.1, "solver.tolerance": 1e-2,
    "splits.train": 8, "splits.validation": 2, "splits.test": 2,
}  # fmt: skip
SMALL = {
    "resolutions": [16], "data.resolution": 16, "task.history": 2, "model.width": 4,
    "model.modes": 3, "model.depth": 2, "training.epochs": 2, "training.batch": 4,
    **{f"data.overrides.{key}": value for key, value in RECIPE.items()},
}  # fmt: skip
TIME = {"task.kind": "time", "task.history": 2, "task.frames": 5}


def declared(**changes: Any) -> Experiment:
    return load_experiment("ns-fno-quick").with_overrides({**SMALL, **changes})


def at_a_time() -> Experiment:
    content = declared().model_dump(mode="json")
    return Experiment.parse(
        {**content, "task": {"kind": "time", "history": 2, "frames": 5}}, "time"
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store, and runs on it with their scores and reports."""

    def make(folder):
        store = generate(declared().data.load_recipe(), str(folder / "ns.zarr"), workers=1).url
        for name, experiment in (("rollout", declared()), ("time", at_a_time())):
            train(experiment, store, folder / name, CPU)
            evaluate_run(experiment, store, folder / name, CPU)
            write_report(folder / name, store, CPU)

    return once(tmp_path_factory, "frames", make)


@pytest.fixture
def store(made):
    return str(made / "ns.zarr")


def scores_of(run: Path) -> tuple[Score, dict[str, Score]]:
    content = json.loads((run / "scores.json").read_text("utf-8"))
    main, *others = map(Score.of, content["results"] + content["trivial"])
    return main, {score.checkpoint: score for score in others}


def relative(p: torch.Tensor, u: torch.Tensor, order: int = 2) -> np.ndarray:
    """Relative error of each sample over all following frames."""
    norms = (torch.linalg.vector_norm(v.double().flatten(1), order, dim=1) for v in (p - u, u))
    error, size = norms
    return (error / size).numpy()


# scores


def test_a_rollout_is_scored_by_step_as_a_block_and_in_l1(made, store):
    main, _ = scores_of(made / "rollout")
    tested = in_memory(store, declared())
    predicted = evaluate(made / "rollout/best.safetensors", store, CPU)
    assert predicted.measures == main.measures
    assert main.measures.keys() & NORMS.keys() == {"l1", "block", "steps"}
    assert list(main.channels) == [f"u, t = {t:g}" for t in TIMES[2:]]
    assert main.measures["block"] == main.errors
    assert np.mean(main.measures["steps"]) == pytest.approx(np.mean(list(main.channels.values())))
    wrong = tested.u * torch.tensor([1.0, 1.1, 1.0, 0.8])
    found = measures_of(wrong, tested.all, tested, Rollout(history=2))
    by_step = [[0.0, 0.1, 0.0, 0.2]] * 2
    np.testing.assert_allclose(found["steps"], np.mean(by_step, axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["l1"], np.mean(by_step, axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["block"], relative(wrong, tested.u), rtol=1e-5)
    assert Score.of(main.summary()) == main
    assert main.summary()["measures"]["steps"]["median"] == np.median(main.measures["steps"])


def test_the_identity_and_the_mean_stand_beside_every_step(made, store):
    _, trivial = scores_of(made / "rollout")
    assert trivial.keys() == {"identity", "mean"}
    whole = Source(store, declared()).stored("test").resident().u
    last, asked = whole[..., 1:2], whole[..., 2:]
    for k, error in enumerate(trivial["identity"].channels.values()):
        step = asked[..., k : k + 1]
        assert error == pytest.approx(relative(last, step).mean(), rel=1e-5)
    train_ = Source(store, declared()).stored("train").resident().u[..., 2:]
    mean = train_.double().mean(dim=0).expand_as(asked)
    np.testing.assert_allclose(trivial["mean"].errors, relative(mean, asked), rtol=1e-5)


def test_unseen_times_are_scored_apart_and_choose_no_epoch(made, store):
    main, trivial = scores_of(made / "time")
    source = Source(store, at_a_time())
    chosen = source.samples("validation", "selection", device=CPU)
    tested = source.samples("test", noise=None).resident()
    learned = source.samples("train", "training", device=CPU)
    assert [c.time for c in chosen.target_channels] == TIMES[2:5]
    assert [c.time for c in tested.target_channels] == TIMES[2:]
    assert (learned.channels, len(learned)) == ((3, 1), 8 * 3)
    seen = {round(float(b.a[0, 0, 0, -1]), 6) for b in learned.batches(0, 0, 1)}
    assert seen == set(TIMES[2:5])
    wrong = tested.u * torch.tensor([1.0, 1.0, 1.1, 1.3])
    found = measures_of(wrong, tested.all, tested, source.task)
    np.testing.assert_allclose(
        found["seen"], relative(wrong[..., :3], tested.u[..., :3]), rtol=1e-5
    )
    np.testing.assert_allclose(found["unseen"], 0.3, rtol=1e-5)
    assert {"seen", "unseen"} <= main.measures.keys()
    identity = relative(tested.a[..., 1:2], tested.u[..., 3:]).mean()
    assert np.mean(trivial["identity"].measures["unseen"]) == pytest.approx(identity, rel=1e-5)


def test_frames_at_once_are_scored_and_reported_as_those_of_a_rollout(store, tmp_path):
    small = {key: value for key, value in SMALL.items() if key != "model.modes"}
    experiment = load_experiment("ns-fno-3d-quick").with_overrides({**small, "model.modes": 3})
    train(experiment, store, tmp_path / "run", CPU)
    evaluate_run(experiment, store, tmp_path / "run", CPU)
    main, trivial = scores_of(tmp_path / "run")
    assert list(main.channels) == [f"u, t = {t:g}" for t in TIMES[2:]]
    assert main.measures["block"] == main.errors
    tested = in_memory(store, experiment)
    assert tested.channels == (2, 4)
    last = tested.a[..., 1:].expand_as(tested.u)
    np.testing.assert_allclose(trivial["identity"].errors, relative(last, tested.u), rtol=1e-5)
    learned = dict(facts(read_finished(tmp_path / "run", store, CPU)))["Learned"]
    assert learned.startswith("the first 2 frames of w → all later ones at once")


# reports


def test_the_report_has_frames_spectrum_times_and_trivial_predictors(made):
    run = made / "rollout"
    html = (run / "report.html").read_text("utf-8")
    for name in ("error-by-time", "spectrum", "frames", "mean-error"):
        assert (run / f"pictures/{name}.svg").exists()
    for words in ("identity (the last known state)", "one block", "averaged over the times",
                  "relative L¹ error", "the last 2 frames of w → the next one"):  # fmt: skip
        assert words in html
    drawn = (run / "pictures/error-by-time.svg").read_text("utf-8")
    assert ">identity<" in drawn
    assert ">mean of the training targets<" in drawn
    assert "trained to t = 2.5" in (made / "time/pictures/error-by-time.svg").read_text()
    times = re.findall(r'data-label="t = ([^"]+)"', html)
    assert [float(time) for time in times] == [float(f"{time:g}") for time in TIMES[2:]]


# refusals


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task.history": 6}, "a rollout of 1 steps from 6 frames needs 7 frames, got 6"),
        ({"task.steps": 5}, "a rollout of 5 steps from 2 frames needs 7 frames, got 6"),
        ({"task.frames": 7}, "cannot train on 7 frames, there are 6"),
        ({"task.frames": 2}, "a rollout of 1 steps from 2 frames needs 3 frames, training uses 2"),
        ({"data.overrides.problem.times": [1.0]}, "the targets have no times"),
    ],
)
def test_frames_that_do_not_fit_are_refused_before_a_store_is_made(refused, changes, said):
    words = [f"{key}={json.dumps(value)}" for key, value in {**SMALL, **changes}.items()]
    line = refused("run", "ns-fno-quick", *(w for word in words for w in ("--set", word)))
    assert line.startswith(f"pdegen: recipe ns-quick: {said}")


# published files


def test_a_model_of_generated_samples_is_evaluated_on_a_published_file(made, store, tmp_path):
    own = Store(store)
    a, u = (own.values(name) for name in ("a", "u"))
    file = mat73(
        tmp_path / "NavierStokes_V1e-3_N12_T6.mat",
        {"a": a, "u": np.moveaxis(u, 1, -1), "t": np.array([TIMES])},
    )
    splits = ImportOptions(splits={"train": 8, "validation": 2, "test": 2})
    imported = import_files([file], str(tmp_path / "published.zarr"), splits).url
    here, there = (
        evaluate(made / "rollout/best.safetensors", url, CPU) for url in (store, imported)
    )
    assert replace(here, seconds=0) == replace(there, seconds=0)


# tables


def test_a_table_is_of_the_measure_that_a_dataset_names(store, tmp_path):
    experiment = tmp_path / "time.toml"
    content = at_a_time().model_dump(mode="json", exclude_none=True)
    content["training"]["epochs"] = 1
    experiment.write_text(toml(content) + "\n", "utf-8")
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 2}
    table = {
        "name": "small", "summary": "s",
        "datasets": {"NS": {"experiment": str(experiment), "measure": "seen"}},
        "operators": {"FNO": {"model": model, "published": {"NS": 0.1},
                              "published_measures": {"NS": {"unseen": 0.25}}}},
    }  # fmt: skip
    run = BenchmarkRun(Benchmark.parse(table, "small"), {"NS": store}, tmp_path / "run")
    run.run(CPU)
    (row,) = run.rows()
    main, trivial = scores_of(run.training_of(row).folder)
    assert row.errors == list(main.measures["seen"])
    assert row.measures["unseen"] == pytest.approx(np.mean(main.measures["unseen"]))
    assert row.measures["block"] == pytest.approx(main.mean)
    assert "l2" not in row.measures
    found = run.trivial("NS")
    assert found["identity (the last known state)"] == pytest.approx(
        np.mean(trivial["identity"].measures["seen"])
    )
    html = write_benchmark_report(run, CPU).read_text("utf-8")
    for words in ("identity (the last known state)", "FNO, published", "2.50e-1"):
        assert words in html
    of = {"experiment": "ns-fno-quick", "overrides": SMALL, "measure": "unseen"}
    wrong = Benchmark.parse({**table, "datasets": {"NS": of}}, "small")
    with pytest.raises(
        SchemaError,
        match="FNO on NS: unknown measure unseen; measures of these data: l2, l1, block",
    ):
        BenchmarkRun(wrong, {"NS": store}, tmp_path / "other").check(CPU)


# points


def test_operators_are_given_points_of_an_interval_in_parts_of_it(tmp_path):
    content = load_experiment("shock-tube-pit-quick").with_overrides(
        {
            "data.overrides.samples": 16, "data.overrides.splits.train": 8,
            "data.overrides.splits.validation": 4, "data.overrides.splits.test": 4,
            "data.overrides.problem.resolution": 32, "data.resolution": 32, "resolutions": [32],
            "model.width": 4, "model.latent": 16, "training.epochs": 2, "training.batch": 4,
        }
    )  # fmt: skip
    url = generate(content.data.load_recipe(), str(tmp_path / "tube.zarr"), workers=1).url
    train(content, url, tmp_path / "run", CPU)
    predictor, _ = load_checkpoint(tmp_path / "run/best.safetensors", build_operator)
    assert predictor.extent == Extent((-5.0,), (10.0,))
    pairs = in_memory(url, content)
    unit = (torch.arange(32)[:, None] + 0.5) / 32
    torch.testing.assert_close(pairs.points / 10 + 0.5, unit)
    found = predictor(pairs.a, pairs.points)
    plain = Predictor(predictor.operator, predictor.input, predictor.target).eval()
    torch.testing.assert_close(found, plain(pairs.a, unit))
    own = pairs.points.expand(len(pairs.a), -1, -1)
    torch.testing.assert_close(predictor(pairs.a, own), found)
    score, trivial = (evaluate_run(content, url, tmp_path / "run", CPU)[k][0] for k in (
        "results", "trivial"
    ))  # fmt: skip
    assert list(score["channels"]) == list(trivial["channels"]) == ["rho", "m", "E"]
    each = relative_error(found.double(), pairs.u.double(), order=1, parts=3).mean(dim=1)
    np.testing.assert_allclose(score["measures"]["l1"]["errors"], each.detach(), rtol=1e-4)
