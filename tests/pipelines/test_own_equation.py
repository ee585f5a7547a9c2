"""The example of docs/: an equation of one's own, from its file to the report of a training."""

import pytest

from pdegen.equations import registry
from pdegen.store.store import Store
from tests.pipelines.command import quietly
from tests.stores import objects_of

EXPERIMENT = """
name = "my-heat"
summary = "heat from its source"
resolutions = [64, 32]
[data]
recipe = "{recipe}"
resolution = 32
[model]
name = "fno"
modes = 6
width = 8
depth = 2
[training]
protocol = "validation"
epochs = 4
batch = 16
lr = 1e-3
warmup = 0.1
div = 25.0
[training.loss]
name = "l2"
[training.optimizer]
name = "adam"
[training.symmetries]
shift = true
"""


@pytest.fixture
def own(root, tmp_path, monkeypatch):
    """The words that name the example's equation, its recipe and an experiment on it."""
    monkeypatch.chdir(tmp_path)
    examples = root / "docs/examples"
    text = (examples / "my_heat.toml").read_text("utf-8")
    small = {"= 640": "= 96", "= 512": "= 64", "validation = 64": "validation = 16",
             "test = 64": "test = 16", "resolution = 128": "resolution = 64",
             "modes = 32": "modes = 16"}  # fmt: skip
    for old, new in small.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "my_heat.toml").write_text(text, "utf-8")
    (tmp_path / "learn.toml").write_text(EXPERIMENT.format(recipe="my_heat.toml"), "utf-8")
    return "--equation", str(examples / "my_equation.py")


def test_the_example_has_at_most_80_lines(root):
    lines = (root / "docs/examples/my_equation.py").read_text("utf-8").splitlines()
    assert len(lines) <= 80


def test_ones_own_equation_goes_all_the_way(own, pdegen, tmp_path):
    quietly("generate", "my_heat.toml", *own, "--out", "s.zarr", "--workers", 1)
    processes = ("--scheduler", "processes", "--workers", 2)
    quietly("generate", "my_heat.toml", *own, "--out", "p.zarr", *processes)
    assert objects_of(Store("s.zarr")) == objects_of(Store("p.zarr"))
    assert pdegen("verify", "s.zarr", "--deep", *own).out == ["s.zarr: verified"]
    outcome = pdegen("run", "learn.toml", *own, "--data", "s.zarr", "--out", "run")
    assert outcome.status == 0, outcome.err
    first, second, report = outcome.out
    assert "n=64" in first
    assert "n=32" in second
    assert report == "run/report.html"
    text = (tmp_path / "run/report.md").read_text("utf-8")
    assert "diffusivity u\\_xx + f, u(0) = 0" in text
    assert "--equation" in text  # in the command that runs it again


def test_a_store_of_it_never_brings_the_code(own, pdegen):
    quietly("generate", "my_heat.toml", *own, "--out", "s.zarr", "--workers", 1)
    registry._registered.pop("heat")  # as in another process
    outcome = pdegen("verify", "s.zarr")
    assert outcome.status == 1
    assert "unknown 'heat'" in outcome.err[-2]
    assert "needs --equation FILE.py" in outcome.err[-2]
    assert pdegen("info", "s.zarr").status == 0


def test_a_symmetry_that_the_equation_has_not_is_refused(own, pdegen, tmp_path):
    quietly("generate", "my_heat.toml", *own, "--out", "s.zarr", "--workers", 1)
    reflected = ("--set", "training.symmetries.reflection=true")
    outcome = pdegen("train", "learn.toml", *own, "--data", "s.zarr", "--out", "run", *reflected)
    assert outcome.status == 2
    assert outcome.err[-1].endswith("s.zarr has no odd-reflection, known: shift")
    assert not (tmp_path / "run").exists()


def test_a_store_of_another_equation_is_refused(own, pdegen, tmp_path):
    quietly("generate", "burgers-quick", "--samples", 12, "--out", "b.zarr", "--workers", 1)
    outcome = pdegen("train", "learn.toml", *own, "--data", "b.zarr", "--out", "run")
    assert outcome.status == 2
    assert "b.zarr holds samples of burgers" in outcome.err[-1]
    assert not (tmp_path / "run").exists()


def test_a_wrong_file_is_a_wrong_request(own, pdegen, tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    outcome = pdegen("generate", "my_heat.toml", "--equation", "broken.py", "--out", "s.zarr")
    (line,) = outcome.err
    assert outcome.status == 2
    assert line.endswith("line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'")
    assert not (tmp_path / "s.zarr").exists()
