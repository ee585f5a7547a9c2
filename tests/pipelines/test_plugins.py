"""Files of users that register operators: the option --plugin of the commands."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module

import pytest
import torch

from operators import CheckpointError, load_model
from operators.training.fit import Stopped
from pdegen import plugins
from pdegen.files import read_json, write_json
from pipelines.config.experiment import load_experiment
from pipelines.runs.folder import RunError
from pipelines.runs.plugins import plugins_of
from pipelines.runs.predictions import experiment_key
from pipelines.runs.training import train
from tests.pipelines.command import everything, quietly
from tests.plugins import in_another_process

OWN = '''
from torch import nn

from operators.base import Operator, check_input
from operators.registry import register


class Local(Operator):
    """u(x) = f(a(x)), with a network f.

    Args:
        width: Hidden features of f.
    """

    def __init__(self, *, in_channels: int = 1, out_channels: int = 1, dim: int = 1,
                 width: int = 8) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.f = nn.Sequential(
            nn.Linear(in_channels, width), nn.GELU(), nn.Linear(width, out_channels)
        )

    def forward(self, a, x, y=None, mask=None):
        check_input(self, a, x, y, mask)
        return self.f(a)


register("local", Local)
'''
LOSS = """
from operators.norms import relative_error
from operators.registry import register_loss


class Mine:
    def __call__(self, prediction, target, a):
        return 1.0 * relative_error(prediction, target).mean()


register_loss("mine", Mine)
"""
OF_TRAINING = f"""
from torch.optim import SGD

from operators.registry import register_optimizer, register_schedule
{LOSS}

class Own(SGD):
    def __init__(self, params, lr: float):
        super().__init__(params, lr)


class Constant:
    def __call__(self, peak, step, steps, epochs):
        return peak


register_optimizer("own", Own)
register_schedule("constant-1", Constant)
"""
SHORT = ("--set", "training.epochs=1", "--set", "training.batch=4")


pytestmark = pytest.mark.usefixtures("alone", "unpainted")


@pytest.fixture
def own(tmp_path):
    """The words that name the file of an operator."""
    (tmp_path / "own.py").write_text(OWN)
    return "--plugin", "own.py"


def test_an_operator_of_a_file_is_trained_and_evaluated(own, pdegen, burgers):
    trained = pdegen(
        "train", "--data", burgers, "--model", "local", *SHORT, "--set", "model.width=4",
        "--out", "run", *own,
    )  # fmt: skip
    assert trained.status == 0, trained.err
    in_another_process()
    outcome = pdegen("evaluate", trained.out[-1], "--data", burgers, "--operator", "own.py")
    assert outcome.status == 0, outcome.err
    assert "relative L2 error" in outcome.out[-1]


def test_the_list_of_operators_has_that_of_the_file(own, pdegen):
    (line,) = (line for line in pdegen("operators", *own).out if line.startswith("  local "))
    assert "u(x) = f(a(x)), with a network f." in line


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys\nsys.exit(3)", "own.py, line 2: SystemExit: 3"),
        ("from . import helper", "own.py, line 1: ImportError: attempted relative import with no"),
        ("raise ValueError('no')", "own.py, line 1: ValueError: no"),
        ("x = 1", "own.py: registers nothing of its own: decorate an equation with @equation, or"),
        (OWN.replace('"local"', '"fno"'), "ValueError: an operator named 'fno' is already regist"),
    ],
)
def test_a_wrong_file_is_one_line(refused, own, tmp_path, code, message):
    (tmp_path / "own.py").write_text(code)
    assert message in refused("operators", *own)
    assert plugins.loaded_plugins() == ()


@pytest.mark.parametrize(
    "code",
    [
        "from helper import WIDTH",
        "import helper as h",
        "def later():\n    import helper",
        "from importlib import import_module\nh = import_module('helper')",
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        "s = spec_from_file_location('h', __file__.replace('own', 'helper'))\n"
        "h = module_from_spec(s)\ns.loader.exec_module(h)",
    ],
)
@pytest.mark.parametrize("loaded", [False, True])
def test_a_file_that_imports_one_beside_it_is_refused(
    refused, own, tmp_path, monkeypatch, code, loaded
):
    (tmp_path / "helper.py").write_text("WIDTH = 8")
    (tmp_path / "own.py").write_text(f"{code}\n{OWN}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    if loaded:  # as by an earlier version of the file
        import_module("helper")
    line = refused("operators", *own)
    assert f"own.py: imports {tmp_path / 'helper.py'}, whose changes would not be noticed" in line
    assert plugins.loaded_plugins() == ()
    sys.modules.pop("helper", None)


def test_a_link_beside_a_file_is_refused_as_what_it_leads_to(refused, own, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "plugins").mkdir()
    (tmp_path / "elsewhere/helper.py").write_text("WIDTH = 8")
    (tmp_path / "plugins/helper.py").symlink_to(tmp_path / "elsewhere/helper.py")
    (tmp_path / "plugins/own.py").write_text(f"import helper\n{OWN}")
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    words = [word.replace("own.py", "plugins/own.py") for word in map(str, own)]
    assert "elsewhere/helper.py, whose changes would not" in refused("operators", *words)
    sys.modules.pop("helper", None)


def test_a_file_beside_installed_packages_imports_them(own, pdegen, tmp_path, monkeypatch):
    package = tmp_path / "venv/lib/site-packages/installed_one"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("WIDTH = 8")
    (tmp_path / "own.py").write_text(f"from installed_one import WIDTH\n{OWN}")
    monkeypatch.syspath_prepend(package.parent)
    assert pdegen("operators", *own).status == 0
    del sys.modules["installed_one"]


def test_what_a_file_prints_goes_to_stderr(own, pdegen, tmp_path):
    (tmp_path / "own.py").write_text(f"print('loading')\n{OWN}")
    outcome = pdegen("operators", "--json", *own)
    assert outcome.err == ["loading"]
    assert "loading" not in outcome.out


def test_an_edited_file_takes_the_place_of_its_earlier_version(own, pdegen, tmp_path):
    plugins.load_plugin("own.py")
    (tmp_path / "own.py").write_text(OWN.replace("width: int = 8", "width: int = 9"))
    plugins.load_plugin("own.py")
    (file,) = plugins.loaded_plugins()
    assert b"width: int = 9" in file.code
    (tmp_path / "own.py").write_text(OWN)
    plugins.load_plugin("own.py")
    (file,) = plugins.loaded_plugins()
    assert b"width: int = 8" in file.code


def test_a_file_that_fails_leaves_its_earlier_version(own, pdegen, tmp_path):
    plugins.load_plugin("own.py")
    (tmp_path / "own.py").write_text(f"{OWN}\nraise ValueError")
    with pytest.raises(ValueError, match="line 29: ValueError"):
        plugins.load_plugin("own.py")
    (file,) = plugins.loaded_plugins()
    assert file.code == OWN.encode()


def test_two_files_cannot_register_one_name(own, refused, tmp_path):
    (tmp_path / "second").mkdir()
    (tmp_path / "second/own.py").write_text(f"{OWN}# another")
    line = refused("operators", *own, "--plugin", "second/own.py")
    assert "second/own.py, line 27: ValueError: an operator named 'local' is already regis" in line


@pytest.fixture(scope="module")
def trained(burgers, tmp_path_factory):
    """The folder of a finished run of the operator of a file, which is not loaded any more."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    (folder / "own.toml").write_text(EXPERIMENT)
    quietly("run", folder / "own.toml", "--data", burgers, "--out", folder / "run",
            "--plugin", folder / "own.py")  # fmt: skip
    in_another_process()
    return folder


EXPERIMENT = """
name = "own"
summary = "an operator of a file"
resolutions = [32]

[data]
recipe = "burgers-quick"
resolution = 32

[model]
name = "local"

[training]
epochs = 1
batch = 4
loss = { name = "l2" }
"""
NEEDS = "operator local comes from the file own.py (SHA-256 "


def test_a_run_keeps_the_file_and_says_which_it_needs(trained, burgers, refused):
    run = trained / "run"
    (copy,) = run.glob("own-*.py")
    assert copy.read_text() == OWN
    for words in (
        ("evaluate", run / "best.safetensors", "--data", burgers),
        ("predict", run / "best.safetensors", "--data", burgers),
        ("report", run),
        ("compare", run, trained / "again", "--out", "compared"),
        ("export", run, "--format", "model"),
    ):
        line = refused(*words)
        assert NEEDS in line
        assert f"which is not loaded: name {copy} by --plugin" in line


def test_the_copy_of_a_run_serves_all_commands(trained, burgers, pdegen):
    run = trained / "run"
    (copy,) = run.glob("own-*.py")
    for words in (
        ("evaluate", run / "best.safetensors", "--data", burgers),
        ("predict", run / "best.safetensors", "--data", burgers, "--out", "p.zarr"),
        ("report", run),
    ):
        outcome = pdegen(*words, "--plugin", copy)
        assert outcome.status == 0, outcome.err
    text = (run / "report.md").read_text("utf-8")
    assert "--plugin" in text  # in the command that repeats the run


@pytest.mark.parametrize("renamed", [False, True])
def test_the_copy_of_a_run_resumes_it(trained, burgers, pdegen, tmp_path, renamed):
    """Files are compared by content, even if run.json and checkpoints have different names."""
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run)
    (copy,) = run.glob("own-*.py")
    declared = read_json(run / "run.json")
    if renamed:
        declared["plugins"]["operator"]["name"] = copy.name
    write_json(run / "run.json", declared)
    in_another_process()
    outcome = pdegen("run", trained / "own.toml", "--data", burgers, "--out", run, "--resume",
                     "--plugin", copy)  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert read_json(run / "run.json") == declared
    if not renamed:
        assert list(run.glob("own-*.py")) == [copy]


def test_nothing_is_written_before_a_resume_is_refused(trained, burgers, refused, tmp_path):
    (tmp_path / "own-new.py").write_text(OWN.replace("nn.GELU()", "nn.ReLU()"))
    shutil.copytree(trained / "run", tmp_path / "run")
    before = everything(tmp_path / "run")
    line = refused("run", trained / "own.toml", "--data", burgers, "--out", "run", "--resume",
                   "--plugin", "own-new.py")  # fmt: skip
    assert "not from its loaded version: name run/own-" in line
    assert everything(tmp_path / "run") == before


def test_a_run_without_a_file_is_not_resumed_with_one(trained, burgers, refused, tmp_path):
    """Such a run is of a class of the same name that an installed package registers."""
    shutil.copytree(trained / "run", tmp_path / "run")
    declared = read_json(tmp_path / "run/run.json")
    del declared["plugins"]
    write_json(tmp_path / "run/run.json", declared)
    line = refused("run", trained / "own.toml", "--data", burgers, "--out", "run", "--resume",
                   "--plugin", trained / "own.py")  # fmt: skip
    assert "its operator local is recorded without a file, now it comes from the file own" in line


@pytest.mark.parametrize("stop", ["first step", "first epoch"])
@pytest.mark.parametrize("known", [True, False], ids=["run.json", "state.pt"])
def test_an_edited_loss_is_found_beside_a_renamed_operator(
    burgers, tmp_path, monkeypatch, stop, known
):
    """The operator's file has another name only; the files of later kinds are compared, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "renamed.py").write_text(OWN)
    (tmp_path / "loss.py").write_text(LOSS)
    text = EXPERIMENT.replace('"l2"', '"mine"').replace("epochs = 1", "epochs = 2")
    (tmp_path / "own.toml").write_text(text)
    run, cpu, epochs = tmp_path / "run", torch.device("cpu"), []
    plugins.load_plugin("own.py")
    plugins.load_plugin("loss.py")
    experiment = load_experiment("own.toml")
    with pytest.raises(Stopped):
        train(experiment, str(burgers), run, cpu, on_epoch=epochs.append,
              stop=lambda: stop == "first step" or len(epochs) == 1)  # fmt: skip
    in_another_process()
    plugins.load_plugin("renamed.py")
    (tmp_path / "loss.py").write_text(LOSS.replace("1.0", "2.0"))
    plugins.load_plugin("loss.py")
    declared = read_json(run / "run.json")
    if not known:
        write_json(run / "run.json", {**declared, "plugins": plugins_of(experiment)})
    message = r"loss mine comes from the file loss\.py" if known else "belongs to another training"
    with pytest.raises(RunError, match=message):
        train(load_experiment("own.toml"), str(burgers), run, cpu, resume=True)
    (tmp_path / "loss.py").write_text(LOSS)
    plugins.load_plugin("loss.py")
    write_json(run / "run.json", declared)
    train(load_experiment("own.toml"), str(burgers), run, cpu, resume=True)


def test_an_edited_file_is_not_taken_for_the_one_of_the_training(
    trained, burgers, refused, tmp_path
):
    (tmp_path / "own.py").write_text(OWN.replace("nn.GELU()", "nn.ReLU()"))  # the weights fit
    run = trained / "run"
    line = refused("evaluate", run / "best.safetensors", "--data", burgers, "--plugin", "own.py")
    assert f"{NEEDS}" in line
    assert "not from its loaded version: name" in line
    line = refused("train", trained / "own.toml", "--data", burgers, "--out", run, "--resume",
                   "--plugin", "own.py")  # fmt: skip
    assert "cannot be resumed: operator local comes from the file own.py" in line
    assert "or start again by --overwrite" in line


def test_a_prediction_needs_no_class_of_the_training(burgers, pdegen, refused, tmp_path):
    """Neither optimiser, schedule nor loss; a report states them, and needs them."""
    (tmp_path / "training.py").write_text(OF_TRAINING)
    text = EXPERIMENT.replace('"local"', '"fno"\nwidth = 4\nmodes = 4\ndepth = 1')
    text = text.replace('"l2"', '"mine"') + (
        'optimizer = { name = "own" }\nschedule = { name = "constant-1" }\n'
    )
    (tmp_path / "own.toml").write_text(text)
    outcome = pdegen("run", "own.toml", "--data", burgers, "--out", "run", "--plugin",
                     "training.py")  # fmt: skip
    assert outcome.status == 0, outcome.err
    in_another_process()
    for words in (("evaluate",), ("predict", "--out", "p.zarr")):
        outcome = pdegen(words[0], "run/best.safetensors", "--data", burgers, *words[1:])
        assert outcome.status == 0, outcome.err
    assert "optimizer own comes from the file training.py (SHA-256 " in refused("report", "run")


def test_an_exported_model_brings_the_file_that_it_needs(trained, pdegen, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    outcome = pdegen("export", trained / "run", "--format", "model", "--out", "m", "--plugin",
                     "own.py")  # fmt: skip
    assert outcome.status == 0, outcome.err
    in_another_process()
    with pytest.raises(CheckpointError, match=r"operator local comes from the file own\.py"):
        load_model("m")
    (copy,) = (tmp_path / "m").glob("own-*.py")
    assert load_model("m", plugin=copy).predictor.operator.in_channels == 1
    assert f'plugin="PATH OF THIS FOLDER/{copy.name}"' in (tmp_path / "m/README.md").read_text()


def test_the_key_of_a_cached_result_has_the_digest_of_the_file(own, pdegen, burgers, tmp_path):
    experiment = tmp_path / "own.toml"
    experiment.write_text(EXPERIMENT)
    keys = set()
    for version in (OWN, f"{OWN}# edited", OWN):
        (tmp_path / "own.py").write_text(version)
        plugins.load_plugin("own.py")
        keys.add(experiment_key(load_experiment(str(experiment)), str(burgers)))
    assert len(keys) == 2
