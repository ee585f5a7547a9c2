"""Datasets and operators of a benchmark have any label; names of paths are slugs of them."""

import tomllib

import pytest

from pdegen.schema import SchemaError
from pipelines.declared.benchmark import Benchmark
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import BenchmarkRun
from tests.pipelines.test_benchmark import CONTENT

LABELS = ["Burgers (64)", ".hidden: [1]", "nu=0.01", "nu"]
BURGERS = {
    "experiment": "benchmark-burgers-quick",
    "overrides": {"data.resolution": 16, "resolutions": [16], "training.epochs": 1,
                  "training.batch": 4},
}  # fmt: skip


def test_folders_of_any_labels_are_their_slugs(tmp_path):
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 4}
    content = {
        "name": "toy", "summary": "Labels", "datasets": dict.fromkeys(LABELS, BURGERS),
        "operators": {"FNO: [4]": {"model": model}},
    }  # fmt: skip
    again = Benchmark.parse(tomllib.loads(toml(content)), "toy")
    run = BenchmarkRun(again, dict.fromkeys(LABELS, "s.zarr"), tmp_path)
    folders = [run.run_folder(case, "seed-0").relative_to(tmp_path) for case in again.cases()]
    names = ["burgers-64", "hidden-1", "nu-0-01", "nu"]
    assert [str(folder) for folder in folders] == [f"runs/{name}/fno-4/seed-0" for name in names]


@pytest.mark.parametrize("label", ["()", "x" * 300])
def test_a_label_of_which_no_name_is_left_is_refused_when_it_is_read(label):
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 4}
    content = {**CONTENT, "operators": {"FNO": {"model": model}}}
    with pytest.raises(SchemaError, match=r"no letter|too long"):
        Benchmark.parse({**content, "datasets": {label: BURGERS}}, "small").check()
