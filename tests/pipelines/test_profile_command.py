"""Profiles that cannot be, and those that go on."""

import csv
import mmap
import shutil
import sys

import pytest
import torch

from pipelines.config.benchmark import Profile
from pipelines.studies import benchmark
from pipelines.studies.benchmark import ProfileRun
from pipelines.studies.cost import Cost, held_bytes
from pipelines.studies.runner import Execution, Row
from tests.pipelines.conftest import CPU

PROFILE = """
name = "toy"
summary = "One operator"
points = 16
batch = 2

[operators.GT]
model = { name = "galerkin-transformer", width = 8, depth = 1, modes = 4, heads = 1 }
"""


def write_profile(folder, name="toy", more=""):
    path = folder / f"{name}.toml"
    path.write_text(PROFILE.replace('"toy"', f'"{name}"') + more, "utf-8")
    return path


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("fno", "16 modes need a grid of at least 32 points"),
        ("galerkin-transformer-2d", "supports domains of dimension 2, the data have dimension 1"),
        ("deeponet", "sensors on a grid"),
    ],
)
def test_an_operator_that_cannot_act_is_refused(refused, tmp_path, model, message):
    more = f'[operators."the other"]\nmodel = {{ name = "{model}" }}\n'
    line = refused("benchmark", write_profile(tmp_path, more=more))
    assert f"the other in profile toy: model {model}: " in line
    assert message in line


def test_quick_stands_for_the_profile_that_is_named(pdegen, refused, tmp_path):
    write_profile(tmp_path, "small")
    path = tmp_path / "large.toml"
    large = PROFILE.replace('"toy"', '"large"').replace("points = 16", "points = 8192")
    path.write_text(f'quick = "small.toml"\n{large}', "utf-8")
    outcome = pdegen("benchmark", path, "--quick")
    assert outcome.status == 0, outcome.err
    assert outcome.out == ["runs/small/report.html"]
    path.write_text(f'quick = "burgers-table2a"\n{large}', "utf-8")
    line = refused("benchmark", path, "--quick", "--out", "other")
    assert "profile large: quick must name a profile, got burgers-table2a" in line


def test_a_folder_of_something_else_is_kept(pdegen, refused, tmp_path):
    path = write_profile(tmp_path)
    assert pdegen("benchmark", path, "--out", "run").status == 0
    assert "run holds a profile: use --overwrite" in refused("benchmark", path, "--out", "run")
    shutil.copytree("run", "other")
    (tmp_path / "other/benchmark.json").write_text("{}", "utf-8")  # it has a table.csv as well
    for way in ([], ["--overwrite"]):
        line = refused("benchmark", path, "--out", "other", *way)
        assert "other exists and is no profile" in line


def test_a_profile_goes_on_with_what_is_not_measured(tmp_path, monkeypatch):
    operators = {name: {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}
                 for name in ("A", "B")}  # fmt: skip
    profile = Profile.parse(
        {"name": "p", "summary": "s", "points": 16, "batch": 2, "operators": operators}, "p"
    )
    run, costs = ProfileRun(profile, tmp_path / "p"), iter([Cost(1.0, 1, 1), KeyboardInterrupt()])

    def measured(*arguments):
        cost = next(costs)
        if isinstance(cost, BaseException):
            raise cost
        return cost

    monkeypatch.setattr(benchmark, "step_cost", measured)
    with pytest.raises(KeyboardInterrupt):
        run.run(CPU)
    monkeypatch.setattr(benchmark, "step_cost", lambda *arguments: Cost(2.0, 1, 1))
    run.run(CPU, resume=True)
    assert [row.step_seconds for row in run.rows()] == [1.0, 2.0]


def test_a_row_names_the_file_of_its_operator(tmp_path, monkeypatch):
    operators = {"A": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}}
    profile = Profile.parse(
        {"name": "p", "summary": "s", "points": 16, "batch": 2, "operators": operators}, "p"
    )
    run, digests = ProfileRun(profile, tmp_path / "p"), set[str]()
    for file in (None, {"sha256": "1"}, {"sha256": "2"}):
        monkeypatch.setattr(benchmark, "file_of", lambda operator, file=file: file)
        digests.add(run.digest("A"))
    assert len(digests) == 3


PUBLISHED = """
[operators.FNO]
model = { name = "fno", width = 4, depth = 1, modes = 4 }
published = { memory = 18.39, speed = 5.02, gflop = 1393 }
"""


def test_published_costs_stand_beside_ours_with_their_place(pdegen, refused, tmp_path):
    bare = write_profile(tmp_path, more=PUBLISHED)
    line = refused("benchmark", bare, "--out", "bare")
    assert "published costs need their source: publication, table and machine" in line
    path = tmp_path / "sourced.toml"
    path.write_text('source = "Cao 2021, Table 1"\n' + bare.read_text("utf-8"), "utf-8")
    assert pdegen("benchmark", path, "--out", "run").status == 0
    lines = (tmp_path / "run/table.csv").read_text("utf-8").splitlines()
    gt, fno = csv.DictReader(lines)
    assert fno["steps / s, published: Cao 2021, Table 1"] == "5.02"
    assert fno["GFLOP, published: Cao 2021, Table 1"] == "1393"
    assert fno["memory of the device, GB, published: Cao 2021, Table 1"] == "18.39"
    assert gt["GFLOP, published: Cao 2021, Table 1"] == ""
    for row in (gt, fno):
        assert float(row["steps / s, ours"]) > 0
        held = float(row["memory of the process, GB, ours"])  # with the interpreter and PyTorch
        assert 0.1 < held < 20
        assert held * 1e9 == pytest.approx(
            float(row["memory of the process, MiB"]) * 2**20, rel=0.01
        )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a step")
def test_memory_of_the_process_is_the_peak_of_the_step_alone():
    def step():
        with mmap.mmap(-1, 2**28) as pages:  # not of malloc, which may keep what is freed
            for _ in range(2**8):
                pages.write(bytes(2**20))

    small = held_bytes(lambda: None, CPU)
    assert held_bytes(step, CPU) - small == pytest.approx(2**28, rel=0.05)
    assert held_bytes(lambda: None, CPU) == pytest.approx(small, rel=0.05)


def two() -> Profile:
    operators = {
        name: {"model": {"name": "fno", "width": width, "depth": 1, "modes": 4}}
        for name, width in (("A", 4), ("B", 8))
    }
    content = {"name": "p", "summary": "s", "points": 16, "batch": 3, "operators": operators}
    return Profile.parse(content, "p")


def test_functions_of_a_profile_have_its_batch_and_points(tmp_path):
    run = ProfileRun(two(), tmp_path)
    a, u, x = run._functions(CPU)
    assert a.shape == u.shape == (3, 16, 1)
    assert not torch.equal(a, u)
    assert x[:, 0].tolist() == [k / 16 for k in range(16)]
    for one, other in zip(run._functions(CPU), (a, u, x), strict=True):
        assert torch.equal(one, other)


def test_a_row_of_a_profile_has_the_costs_of_its_operator(tmp_path, monkeypatch):
    run, calls = ProfileRun(two(), tmp_path), []

    def costed(step, operator, optimizer, device):
        before = [weights.clone() for weights in operator.parameters()]
        step()
        after = list(operator.parameters())
        assert all(not torch.equal(p, q) for p, q in zip(before, after, strict=True))
        assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in after}
        calls.append((operator.training, device))
        return Cost(1.5, 20, 300)

    monkeypatch.setattr(benchmark, "step_cost", costed)
    monkeypatch.setattr(benchmark, "held_bytes", lambda step, device: 4000)
    row = run.make("B", Execution(CPU))
    assert row.parameters == run._operator("B", CPU).parameter_count
    assert row.parameters != run._operator("A", CPU).parameter_count
    assert (row.operator, row.made_from, row.cost) == ("B", run.digest("B"), Cost(1.5, 20, 300))
    assert row.step_held_bytes == 4000
    assert row.provenance["device"].startswith("cpu (")
    assert calls == [(True, CPU)]


def test_parts_of_a_profile_have_files_and_lines_of_their_own(tmp_path):
    run = ProfileRun(two(), tmp_path)
    assert run.stages() == [["A", "B"]]
    assert [run.row_path(part) for part in "AB"] == [tmp_path / f"rows/{k}.json" for k in (0, 1)]
    assert run.digest("A") != run.digest("B")
    longer = two().model_copy(update={"points": 32})
    assert ProfileRun(longer, tmp_path).digest("A") != run.digest("A")
    assert run.progress_line("B", Row(step_seconds=0.012345)) == "B: 0.0123 s"
