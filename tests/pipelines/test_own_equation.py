"""The example of docs/: an equation of one's own, from its file to the report of a training."""

import re
import shlex
import sys

import pytest

from pdegen.equations import base
from pdegen.plugins import plugin_of
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.experiment import Experiment
from tests.pipelines.command import quietly
from tests.plugins import in_another_process
from tests.stores import objects_of

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture
def own(root, tmp_path, monkeypatch):
    """The words that name the example's equation, its recipe and an experiment on it."""
    monkeypatch.chdir(tmp_path)
    in_another_process()
    examples = root / "docs/examples"
    for old, new, changes in (
        ("my_heat.toml", "my_heat.toml", {
            "= 640": "= 96", "= 512": "= 64", "validation = 64": "validation = 16",
            "test = 64": "test = 16", "resolution = 128": "resolution = 64",
            "modes = 32": "modes = 16"}),
        ("my_experiment.toml", "learn.toml", {
            "docs/examples/": "", "resolutions = [128, 64]": "resolutions = [64, 32]",
            "resolution = 64": "resolution = 32", "modes = 12": "modes = 6",
            "epochs = 10": "epochs = 4"}),
    ):  # fmt: skip
        text = (examples / old).read_text("utf-8")
        for part, smaller in changes.items():
            assert part in text
            text = text.replace(part, smaller)
        (tmp_path / new).write_text(text, "utf-8")
    return "--plugin", str(examples / "my_equation.py")


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
    assert "--plugin" in text  # in the command that runs it again


def test_a_store_of_it_never_brings_the_code(own, pdegen):
    quietly("generate", "my_heat.toml", *own, "--out", "s.zarr", "--workers", 1)
    in_another_process()
    outcome = pdegen("verify", "s.zarr")
    assert (outcome.status, len(outcome.err)) == (2, 1)
    assert "unknown 'heat'" in outcome.err[0]
    assert "needs --plugin FILE.py" in outcome.err[0]
    assert pdegen("info", "s.zarr").status == 0


def test_a_wrong_file_is_a_wrong_request(own, pdegen, tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    outcome = pdegen("generate", "my_heat.toml", "--plugin", "broken.py", "--out", "s.zarr")
    (line,) = outcome.err
    assert outcome.status == 2
    assert line.endswith("line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'")
    assert not (tmp_path / "s.zarr").exists()


SOLVED = '{"a": f.astype(np.float32), "u": self.solution(f).astype(np.float32)}'
WRONG = {  # what stands in place of the values that `solve` returns, and what is said of it
    "error": ("self.sovled(f)", "my.py, line {line}: AttributeError: 'Heat' object has no"),
    "value": ("float('three')", "my.py, line {line}: ValueError: could not convert"),
    "nan": (SOLVED.replace("self", "np.nan * self"), "heat, sample 0: u is not finite"),
    "large": (SOLVED.replace("self.solution(f).astype(np.float32)", "f + 1e300"),
              "sample 0: u is not finite, or exceeds float32"),
    "shape": (SOLVED.replace("(f)", "(f)[:, ::2]"), "gives u of shape (1, 32): expected (1, 64)"),
    "names": (SOLVED.replace('"u"', '"v"'), "gives a, v: expected a dictionary of arrays for a, u"),
    "none": ("None", "gives NoneType: expected a dictionary of arrays for a, u"),
    "kind": (SOLVED.replace('"u": ', '"u": 1j + '), "gives u of type complex"),
    "rows": (SOLVED.replace("self.solution(f).astype(np.float32)", "[[1], [1, 2]]"),
             "gives u that is no array"),
}  # fmt: skip


def changed(root, tmp_path, old, new):
    """The example's file with another piece of code, and the line of that."""
    text = (root / "docs/examples/my_equation.py").read_text("utf-8")
    assert old in text
    (tmp_path / "my.py").write_text(text.replace(old, new), "utf-8")
    return text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_values_are_refused_before_anything_is_written(own, root, pdegen, tmp_path, wrong):
    code, said = WRONG[wrong]
    line = changed(root, tmp_path, SOLVED, code)
    outcome = pdegen("generate", "my_heat.toml", "--plugin", "my.py", "--out", "s.zarr")
    (message,) = outcome.err
    assert outcome.status == 2
    assert said.format(line=line) in message
    assert "my.py" in message
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return Box.periodic(", "return Bxo.periodic(", "line {}: NameError: name 'Bxo' is not"),
        ('Distinct("a"),', "Distinkt(),", "line {}: NameError: name 'Distinkt' is not defined"),
        ("def checks(self)", "def lwa(self)", "Heat lacks checks: an equation must define it"),
    ],
)
def test_a_mistake_in_a_member_is_one_line(own, root, pdegen, tmp_path, old, new, said):
    line = changed(root, tmp_path, old, new)
    words = ("generate", "my_heat.toml", "--plugin", "my.py", "--out", "s.zarr")
    outcome = pdegen(*words)
    (message,) = outcome.err
    assert outcome.status == 2
    assert re.search(rf"my\.py[,:] {re.escape(said.format(line))}", message)
    assert any("Traceback" in text for text in pdegen(*words, "--debug").err)
    assert not (tmp_path / "s.zarr").exists()


def test_a_mistake_in_a_later_sample_names_the_samples(own, root, pdegen, tmp_path):
    line = changed(root, tmp_path, SOLVED, f"{SOLVED} if samples[0] < 64 else nothing")
    for more in ((), ("--scheduler", "processes", "--workers", 1)):
        words = ("generate", "my_heat.toml", "--plugin", "my.py", "--out", f"s{len(more)}.zarr")
        outcome = pdegen(*words, *more)
        assert outcome.status == 2
        assert f"my.py, line {line}: NameError: name 'nothing'" in outcome.err[-1]
        assert "(equation heat, samples 64 to 95; --debug" in outcome.err[-1]


def test_verify_names_the_file_that_made_the_store(own, root, pdegen, tmp_path):
    quietly("generate", "my_heat.toml", *own, "--out", "s.zarr", "--workers", 1)
    in_another_process()
    made = "my_equation.py (SHA-256 "
    without = pdegen("verify", "s.zarr")
    assert (without.status, len(without.err)) == (2, 1)
    assert f"made with --plugin {made}" in without.err[0]
    changed(root, tmp_path, '"""The heat', '"""Another heat')
    (said,) = pdegen("verify", "s.zarr", "--plugin", "my.py").err
    assert f"equation heat comes from the file {made}" in said
    assert f"{tmp_path}/my.py is another version of it" in said


def test_verify_says_that_an_equation_was_imported(own, pdegen, tmp_path, monkeypatch):
    import pdegen as library

    monkeypatch.syspath_prepend(own[1].removesuffix("/my_equation.py"))
    in_another_process()
    module = __import__("my_equation")
    store = library.generate("my_heat.toml", out="s.zarr")
    assert library.verify(store).faults == []
    base._registered.pop("heat")
    sys.modules.pop(module.__name__)
    said = pdegen("verify", "s.zarr", *own).err[-2]
    assert "equation heat was registered by an import" in said
    assert "pdegen.load_plugin" in said
    library.load_plugin(own[1])
    store = library.generate("my_heat.toml", out="s.zarr", overwrite=True)
    assert library.verify(store).faults == []
    assert pdegen("verify", "s.zarr", *own).status == 0


def test_an_edited_file_takes_the_place_of_its_earlier_version(own, root, tmp_path):
    import pdegen as library

    for more in ("", "# edited\n"):
        changed(root, tmp_path, "@equation", f"{more}@equation")
        library.load_plugin(tmp_path / "my.py")
    assert plugin_of(base.find("heat")).code.count(b"# edited") == 1
    with pytest.raises(SchemaError, match=r"heat comes from .*my.py: choose another name"):
        library.load_plugin(own[1])


def test_a_training_on_its_store_is_finished_by_the_command_that_is_named(own, pdegen, tmp_path):
    quietly("generate", "my_heat.toml", *own, "--out", "s.zarr", "--workers", 1)
    short = ("--set", "training.epochs=1", "--set", "model.width=8", "--set", "model.modes=4")
    quietly("train", "--data", "s.zarr", "--model", "fno", *short, "--out", "run", *own)
    (tmp_path / "run/history.jsonl").unlink()
    refused = pdegen("report", "run", *own)
    assert refused.status == 2
    said, command = refused.err[-1].split(" is missing: pdegen ")
    assert "scores.json" in said
    assert pdegen(*shlex.split(command)).status == 0
    assert pdegen("report", "run").status == 0  # which needs no code
    (line,) = re.findall("pdegen run .*", (tmp_path / "run/report.md").read_text("utf-8"))
    assert "--data s.zarr" in line
    assert "my_equation.py" in line.replace("\\", "")


def test_every_key_of_an_experiment_is_documented(root):
    text = (root / "docs/experiments.md").read_text("utf-8").partition("\n## Keys\n")[2]
    text = text.replace(".NAME.", ".")  # of a condition
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`([a-z0-9_.]+)`", " ".join(rows)))
    known = {key for key in Experiment.keys() if not key.startswith("model.")}  # noqa: SIM118
    assert {key for key in listed if not key.startswith("model.")} == known


def test_links_of_the_documents_lead_to_files(root):
    for document in (root / "docs").glob("*.md"):
        # the site writes generated/ when it is built, and checks the links to it
        links = re.findall(r"\]\((?!generated/)([^)#:]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
        assert [link for link in links if not (document.parent / link).exists()] == []
