"""Datasets and operators of a benchmark have any label; names of paths are slugs of them."""

import csv

import pytest

from pdegen.schema import SchemaError
from pipelines.declared.benchmark import Benchmark
from pipelines.runs.reproduction import toml
from tests.pipelines.command import SMALL, quietly
from tests.pipelines.test_benchmark import CONTENT

LABELS = ["Burgers (64)", ".hidden: [1]", "nu=0.01", "nu"]
BURGERS = {
    "experiment": "benchmark-burgers-quick",
    "overrides": {"data.resolution": 16, "resolutions": [16], "training.epochs": 1,
                  "training.batch": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    quietly("generate", "burgers-quick", *SMALL, "--out", folder / "burgers.zarr")
    return folder / "burgers.zarr"


def test_any_label_is_trained_evaluated_and_reported(pdegen, store, tmp_path):
    content = {
        "name": "toy", "summary": "Labels", "datasets": dict.fromkeys(LABELS, BURGERS),
        "operators": {"FNO: [4]": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}},
    }  # fmt: skip
    (tmp_path / "toy.toml").write_text(toml(content), "utf-8")
    words = [word for label in LABELS for word in ("--data", f"{label}={store}")]
    outcome = pdegen("benchmark", "toy.toml", *words, "--out", "run")
    assert outcome.status == 0, outcome.err[-3:]
    lines = csv.DictReader((tmp_path / "run" / "table.csv").read_text("utf-8").splitlines())
    assert [line["dataset"] for line in lines] == LABELS
    folders = {path.name for path in (tmp_path / "run" / "runs").iterdir()}
    assert folders == {"burgers-64", "hidden-1", "nu-0-01", "nu"}


@pytest.mark.parametrize("label", ["()", "x" * 300])
def test_a_label_of_which_no_name_is_left_is_refused_when_it_is_read(label):
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 4}
    content = {**CONTENT, "operators": {"FNO": {"model": model}}}
    with pytest.raises(SchemaError, match=r"no letter|too long"):
        Benchmark.parse({**content, "datasets": {label: BURGERS}}, "small").check()
