"""Tiny finished runs with their reports, and their stores; all to be read only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.once import once
from tests.pipelines.command import SMALL as TWELVE
from tests.pipelines.command import call, everything, quietly

if TYPE_CHECKING:
    from operators.data import Samples
    from pipelines.config.experiment import Experiment
    from pipelines.studies.benchmark import BenchmarkRun

CPU = torch.device("cpu")
DATA = {
    "samples": 24,
    "shard": 24,
    "problem.resolution": 32,
    "solver.resolution": 128,
    "initial.modes": 31,
}
SMALL = {
    "resolutions": [16, 32],
    "data.resolution": 16,
    "model.width": 8,
    "model.depth": 1,
    "model.feedforward": 8,
    "model.modes": 4,
    "model.decoder_width": 8,
    "training.batch": 8,
    **{f"data.overrides.{key}": value for key, value in DATA.items()},
}
DARCY_DATA = {
    "samples": 24,
    "shard": 24,
    "problem.resolution": 13,
    "field.modes": 13,
    "splits.train": 16,
    "splits.validation": 4,
    "splits.test": 4,
}
SMALL_DARCY = {
    "data.resolution": 13,
    "model.width": 8,
    "model.depth": 1,
    "model.heads": 1,
    "model.feedforward": 8,
    "model.modes": 3,
    "model.decoder_width": 8,
    "model.head_width": 8,
    "training.batch": 8,
    "training.epochs": 2,
    **{f"data.overrides.{key}": value for key, value in DARCY_DATA.items()},
}

OTHERS = {"seeded": {"training.seed": 1}, "deep": {"model.depth": 2, "training.batch": 4}}


def a_run(
    factory: pytest.TempPathFactory,
    name: str,
    overrides: dict[str, Any],
    of: str = "burgers-quick",
    /,
    **words: str,
) -> tuple[Path, str]:
    """Train, evaluate and report a tiny variant of an experiment; its folder and store."""
    from pdegen.generation.generate import generate
    from pipelines.config.experiment import load_experiment
    from pipelines.reports.report import write_report
    from pipelines.runs.evaluation import evaluate_run
    from pipelines.runs.training import train

    experiment = load_experiment(of).with_overrides(overrides)
    experiment = experiment.model_copy(update=words)

    def make(folder: Path) -> None:
        store = generate(experiment.data.load_recipe(), str(folder / "data.zarr"), workers=1).url
        train(experiment, store, folder / "run", CPU)
        evaluate_run(experiment, store, folder / "run", CPU)
        write_report(folder / "run", store, CPU)

    folder = once(factory, f"run-{name}", make)
    return folder / "run", str(folder / "data.zarr")


def learned(store: str, experiment: Experiment) -> Samples:
    """What a training reads of a store."""
    from pipelines.runs.data import Source

    return Source(store, experiment).samples("train", "training", device=CPU)


def in_memory(store: str, experiment: Experiment, split: str = "test") -> Samples:
    """The samples of a split in memory, without noise."""
    from pipelines.runs.data import Source

    return Source(store, experiment).samples(split, noise=None).resident()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Protocol "validation", two epochs."""
    return a_run(tmp_path_factory, "validation", {**SMALL, "training.epochs": 2})


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """Protocol "published", trajectories, another optimizer, hostile words."""
    overrides = {
        **SMALL,
        "training.protocol": "published",
        "training.epochs": 1,
        "training.optimizer.name": "adam",
        "data.overrides.times": [0.05, 0.1, 0.15],
    }
    return a_run(
        tmp_path_factory, "published", overrides,
        name="published", summary='<script>alert("1")</script> a | b `c` $d$ <b>',
    )  # fmt: skip


@pytest.fixture(scope="session")
def burgers(tmp_path_factory):
    """A store of 12 samples in shards of 5, without a training."""

    def make(folder):
        quietly("generate", "burgers-quick", *TWELVE, "--out", folder / "burgers.zarr")

    return once(tmp_path_factory, "burgers", make) / "burgers.zarr"


@pytest.fixture(scope="session")
def benchmarked(burgers, tmp_path_factory):
    """A benchmark of two operators from two seeds, with its report."""
    from pipelines.reports.benchmark_report import write_benchmark_report
    from pipelines.studies.benchmark import BenchmarkRun
    from tests.pipelines.test_benchmark import declared

    def run(folder: Path) -> BenchmarkRun:
        return BenchmarkRun(declared(), {"burgers": str(burgers)}, folder / "run")

    def make(folder: Path) -> None:
        run(folder).run(CPU)
        write_benchmark_report(run(folder), CPU)

    return run(once(tmp_path_factory, "benchmark", make))


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """A store of darcy-quick in shards of 3, 16 of whose 24 samples are to be trained on."""
    from pdegen.generation.generate import generate
    from pdegen.recipe import load_recipe

    recipe = load_recipe("darcy-quick").with_overrides({**DARCY_DATA, "shard": 3})

    def make(folder):
        generate(recipe, str(folder / "darcy.zarr"), workers=1)

    return str(once(tmp_path_factory, "darcy-shards", make) / "darcy.zarr")


@pytest.fixture(scope="session")
def store(finished):
    """24 samples at one time."""
    return finished[1]


@pytest.fixture(scope="session")
def trajectories(published):
    """24 samples at three times."""
    return published[1]


@pytest.fixture(scope="session")
def darcy(tmp_path_factory):
    """From the coefficient to the solution, on the square; evaluated on a coarser grid as well."""
    overrides = {**SMALL_DARCY, "resolutions": [7, 13], "model.latent": 7}
    return a_run(tmp_path_factory, "darcy", overrides, "darcy-quick")


@pytest.fixture(scope="session")
def inverse(tmp_path_factory):
    """From the noisy solution to averages of the coefficient; protocol "published"."""
    overrides = {
        **SMALL_DARCY,
        "resolutions": [13],
        "data.target_resolution": 5,
        "noise.level": 0.1,
        "training.protocol": "published",
    }
    return a_run(tmp_path_factory, "inverse", overrides, "darcy-inverse-quick")


@pytest.fixture(scope="session")
def runs(finished, tmp_path_factory):
    """The finished run "run", and on its store one of another seed and one of another model."""
    from pipelines.config.experiment import load_experiment
    from pipelines.runs.evaluation import evaluate_run
    from pipelines.runs.training import train

    store = finished[1]

    def make(folder):
        for name, changes in OTHERS.items():
            settings = {**SMALL, "training.epochs": 2, **changes}
            experiment = load_experiment("burgers-quick").with_overrides(settings)
            train(experiment, store, folder / name, CPU)
            evaluate_run(experiment, store, folder / name, CPU)

    folder = once(tmp_path_factory, "compared", make)
    return {"run": finished[0], **{name: folder / name for name in OTHERS}}


@pytest.fixture(scope="session")
def three(runs, tmp_path_factory):
    """A comparison of the model of two layers with the two seeds of one."""
    from pipelines.reports.comparison_report import write_comparison
    from pipelines.runs.comparison import read_comparison

    out = tmp_path_factory.mktemp("three") / "out"
    found = read_comparison([runs[name] for name in ("deep", "run", "seeded")], out, CPU)
    write_comparison(found, out)
    return out


@pytest.fixture
def unpainted(request, monkeypatch):
    """Figures of reports are made as always, and every file of one is an empty picture: matplotlib
    takes most of the time of a report. What is drawn is tested in other modules.

    No test that has it may ask for a fixture of the session by `getfixturevalue`, or write into the
    folder of one: its reports would have no pictures for all tests.
    """
    if "painted" not in request.fixturenames:
        from pipelines.reports import figures

        monkeypatch.setattr(figures, "_file", lambda figure, suffix: b"<svg></svg>")


@pytest.fixture
def painted():
    """Leave `unpainted` out: for reports of results that are incomplete."""


@pytest.fixture
def pdegen(capsys, monkeypatch, tmp_path):
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: call(capsys, monkeypatch, *words)


@pytest.fixture
def refused(pdegen, tmp_path):
    """Run a wrong request: status 2, one line, nothing written; returns the line."""

    def run(*words):
        before = everything(tmp_path)
        outcome = pdegen(*words)
        assert outcome.status == 2, outcome.err
        (line,) = outcome.err
        assert line.startswith("pdegen: ")
        assert outcome.out == []
        assert everything(tmp_path) == before
        return line

    return run
