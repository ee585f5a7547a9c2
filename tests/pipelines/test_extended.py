"""A finished table gets further rows and columns, and nothing is trained twice."""

import shutil

import pytest

from operators.registry import OPERATORS
from pdegen.files import read_json
from pdegen.plugins import load_plugin
from pdegen.schema import SchemaError
from pipelines.config.benchmark import load_benchmark, with_plugin_rows
from pipelines.studies import runner
from tests.pipelines.test_benchmark_command import write_toy

pytestmark = pytest.mark.usefixtures("unpainted")

OWN = """
from operators.base import BOXES, Operator, check_input
from operators.registry import register
from torch import nn


class Pointwise(Operator):
    domains = {domains}

    def __init__(self, in_channels=None, out_channels=None, dim=None):
        super().__init__(in_channels, out_channels, dim)
        self.linear = nn.Linear(self.in_channels, self.out_channels)

    def forward(self, a, x, y=None, mask=None):
        check_input(self, a, x, y, mask)
        return self.linear(a)


register("{name}", Pointwise)
"""


@pytest.fixture
def own(tmp_path):
    """Writes a file with an operator of a name and its domains."""

    def write(name="pointwise", domains="BOXES"):
        path = tmp_path / f"{name}.py"
        path.write_text(OWN.format(name=name, domains=domains), "utf-8")
        return path

    before = dict(OPERATORS)
    yield write
    for name in OPERATORS.keys() - before.keys():
        del OPERATORS[name]


@pytest.fixture
def trained(monkeypatch):
    """Names of the experiments that are trained."""
    names, train = [], runner.train_part

    def counted(experiment, *arguments, **options):
        names.append(experiment.name)
        return train(experiment, *arguments, **options)

    monkeypatch.setattr(runner, "train_part", counted)
    return names


def contents(folder):
    """Bytes of the rows and runs in a folder."""
    files = [file for room in ("rows", "runs") for file in (folder / room).rglob("*")]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if f.is_file()}


def operators_of(folder):
    lines = (folder / "table.csv").read_text("utf-8").splitlines()[1:]
    return [line.split(",")[1] for line in lines]


def test_an_operator_of_ones_own_joins_a_finished_table_without_training_the_others(
    pdegen, burgers, tmp_path, own, trained
):
    data = ["--data", f"burgers={burgers}", "--out", tmp_path / "run"]
    toy, file = write_toy(tmp_path), own()
    assert pdegen("benchmark", toy, *data).status == 0
    assert trained == ["toy-burgers-fno", "toy-burgers-deeponet"]
    before = contents(tmp_path / "run")
    add = ["--operator", file, "--only", "pointwise", "--resume"]
    outcome = pdegen("benchmark", toy, *data, *add)
    assert outcome.status == 0, outcome.err
    assert trained[2:] == ["toy-burgers-pointwise"]
    after = contents(tmp_path / "run")
    assert {name: after[name] for name in before} == before
    assert operators_of(tmp_path / "run") == ["FNO", "DeepONet", "pointwise"]
    declared = read_json(tmp_path / "run/benchmark.json")
    assert list(declared["operators"]) == ["FNO", "DeepONet", "pointwise"]
    report = (tmp_path / "run/report.md").read_text("utf-8")
    assert "not finished" not in report
    assert f"--operator {file}" in report  # the command that is printed
    again = pdegen("benchmark", toy, *data, "--plugin", file, "--resume")  # nothing is left to do
    assert again.status == 0, again.err
    assert len(trained) == 3
    assert operators_of(tmp_path / "run") == ["FNO", "DeepONet", "pointwise"]


def test_rows_of_other_settings_do_not_stay_in_the_table(pdegen, burgers, tmp_path, trained):
    toy, folder = write_toy(tmp_path), tmp_path / "run"
    data = ["--data", f"burgers={burgers}", "--out", folder]
    assert pdegen("benchmark", toy, *data, "--only", "FNO").status == 0
    longer = ["--only", "DeepONet", "--resume", "--set", "training.epochs=2"]
    assert pdegen("benchmark", toy, *data, *longer).status == 0
    assert operators_of(folder) == ["DeepONet"]
    before = contents(folder)
    outcome = pdegen("benchmark", toy, *data, "--only", "DeepONet", "--resume")
    assert outcome.status == 2
    assert (
        "is finished with training.epochs = 2, not 1: give the settings, data and"
        in outcome.err[-1]
    )
    assert contents(folder) == before
    assert pdegen("benchmark", toy, *data, "--only", "FNO", "--resume").status == 0
    assert operators_of(folder) == ["FNO"]
    assert len(trained) == 2


def test_rows_of_a_store_that_is_gone_leave_the_table(pdegen, burgers, tmp_path, trained):
    toy, folder = write_toy(tmp_path), tmp_path / "run"
    first, second = toy.read_text("utf-8").split("[operators.FNO]")
    others = first[first.index("[datasets.burgers]") :].replace("datasets.burgers", "datasets.gone")
    toy.write_text(f"{first}{others}[operators.FNO]{second}", "utf-8")
    shutil.copytree(burgers, tmp_path / "gone.zarr")
    data = ["--data", f"burgers={burgers}", "--out", folder]
    both = [*data, "--data", f"gone={tmp_path / 'gone.zarr'}"]
    assert pdegen("benchmark", toy, *both, "--only", "FNO").status == 0
    shutil.rmtree(tmp_path / "gone.zarr")
    words = ["--on", "burgers", "--only", "DeepONet", "--resume"]
    outcome = pdegen("benchmark", toy, *data, *words)
    assert outcome.status == 0, outcome.err
    assert len(trained) == 3
    table = (folder / "table.csv").read_text("utf-8").splitlines()[1:]
    assert [line.split(",")[:2] for line in table] == [["burgers", "FNO"], ["burgers", "DeepONet"]]


def test_rows_of_single_seeds_on_several_datasets_are_in_one_table(
    pdegen, burgers, tmp_path, trained
):
    toy, folder = write_toy(tmp_path), tmp_path / "run"
    first, second = toy.read_text("utf-8").split("[operators.FNO]")
    others = first[first.index("[datasets.burgers]") :].replace("datasets.burgers", "datasets.twin")
    toy.write_text(f"{first}{others}[operators.FNO]{second}", "utf-8")
    shutil.copytree(burgers, tmp_path / "twin.zarr")
    for dataset, store in (("burgers", burgers), ("twin", tmp_path / "twin.zarr")):
        data = ["--data", f"{dataset}={store}", "--on", dataset]
        fno = ["benchmark", toy, *data, "--only", "FNO", "--out", folder, "--resume"]
        assert pdegen(*fno, "--seed", "0").status == 0
    outcome = pdegen(*fno)
    assert outcome.status == 0, outcome.err
    assert len(trained) == 2
    table = (folder / "table.csv").read_text("utf-8").splitlines()[1:]
    assert [line.split(",")[:2] for line in table] == [["burgers", "FNO"], ["twin", "FNO"]]


def test_a_table_is_not_extended_without_resume(refused, pdegen, burgers, tmp_path, own):
    toy, folder = write_toy(tmp_path), tmp_path / "run"
    data = ["--data", f"burgers={burgers}", "--out", folder]
    assert pdegen("benchmark", toy, *data, "--only", "FNO").status == 0
    before = shutil.copytree(folder, tmp_path / "copy")
    line = refused("benchmark", toy, *data, "--plugin", own(), "--only", "pointwise")
    assert f"{folder} holds a benchmark: use --resume or --overwrite" in line
    assert contents(folder) == contents(before)


def test_a_row_is_on_the_datasets_whose_domains_the_operator_takes(own):
    load_plugin(str(own("of-circles", 'frozenset({"periodic"})')))
    row = with_plugin_rows(load_benchmark("quick")).operators["of-circles"]
    assert list(row.models) == ["burgers"]
    assert with_plugin_rows(load_benchmark("meshes")).operators["of-circles"].model is not None


def test_an_operator_that_the_table_has_is_no_further_row(own, tmp_path):
    load_plugin(str(own()))
    path = write_toy(tmp_path)
    text = path.read_text("utf-8") + '\n[operators.Mine]\nmodel = { name = "pointwise" }\n'
    path.write_text(text, "utf-8")
    benchmark = load_benchmark(str(path))
    assert with_plugin_rows(benchmark) is benchmark


def test_a_row_with_the_folder_of_another_row_is_refused(own):
    load_plugin(str(own("Fno")))
    with pytest.raises(SchemaError, match="names of operators must differ in letters or digits"):
        with_plugin_rows(load_benchmark("quick"))
