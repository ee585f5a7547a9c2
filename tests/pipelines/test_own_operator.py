"""The example of docs/: one file with an operator, an optimiser, a schedule and a loss."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
import torch

from operators.testing import Expected, check_operator
from operators.training.fit import Stopped
from pdegen import plugins
from pipelines.config.experiment import load_experiment
from pipelines.runs.training import train
from tests.pipelines.command import history
from tests.plugins import in_another_process

EXPERIMENT = """
name = "own"
summary = "everything of one's own"
resolutions = [32]

[data]
recipe = "burgers-quick"
resolution = 32

[model]
name = "integral"
width = 8

[training]
epochs = 4
batch = 4
lr = 1e-3
loss = { name = "l4" }
optimizer = { name = "lion" }
schedule = { name = "linear" }
"""
BENCHMARK = """
extends = "quick"
name = "mine"
summary = "FNO beside an operator of one's own"

[operators."Integral".models]
burgers = { name = "integral", width = 8 }

[operators."FNO".models]
burgers = { name = "fno", width = 4, modes = 4, depth = 1 }
"""
SMALL = ("--set", "epochs=1", "--set", "training.batch=4", "--set", "data.resolution=32", "--set",
         "resolutions=[32]", "--set", "optimizer.name=lion", "--set", "schedule.name=linear",
         "--set", "loss.name=l4")  # fmt: skip


pytestmark = pytest.mark.usefixtures("alone", "unpainted")


@pytest.fixture
def example(root):
    return root / "docs/examples/my_plugin.py"


def test_the_example_has_at_most_120_lines(example):
    assert len(example.read_text("utf-8").splitlines()) <= 120


def test_the_operator_keeps_the_contract(example):
    module = plugins.module_of(plugins.load_plugin(str(example)))
    checked = check_operator(module.Integral, Expected(steps=0), width=8)
    assert "in 2-D: a batch equals its samples, cloud by sample points" in checked


def test_it_trains_and_resumes_to_the_same_bits(example, burgers, tmp_path):
    plugins.load_plugin(str(example))
    (tmp_path / "own.toml").write_text(EXPERIMENT)
    experiment = load_experiment(str(tmp_path / "own.toml"), str(burgers))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(experiment, str(burgers), whole, torch.device("cpu"))
    epochs = []
    with pytest.raises(Stopped):
        train(experiment, str(burgers), parts, torch.device("cpu"), on_epoch=epochs.append,
              stop=lambda: len(epochs) == 2)  # fmt: skip
    train(experiment, str(burgers), parts, torch.device("cpu"), resume=True)
    assert history(parts) == history(whole)
    for name in ("best.safetensors", "last.safetensors"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()


def test_it_is_benchmarked_beside_fno_and_reported(example, burgers, pdegen, tmp_path):
    (tmp_path / "mine.toml").write_text(BENCHMARK)
    words = ("benchmark", "mine.toml", "--plugin", example, "--only", "Integral", "--only", "FNO",
             "--on", "burgers", "--data", f"burgers={burgers}", "--out", "mine",
             *SMALL)  # fmt: skip
    outcome = pdegen(*words)
    assert outcome.status == 0, outcome.err
    text = (tmp_path / "mine/report.md").read_text("utf-8")
    assert re.search(r"^\| Integral \|", text, re.M)
    assert re.search(r"^\| FNO \|", text, re.M)
    assert f"--plugin {example}" in text.replace("\\", "")  # in the command that repeats it
    in_another_process()
    checkpoint = "mine/runs/burgers/integral/seed-0/best.safetensors"
    refused = pdegen("evaluate", checkpoint, "--data", burgers)
    assert "operator integral comes from the file my_plugin.py (SHA-256 " in refused.err[-1]


def test_the_command_of_a_report_repeats_the_run(example, burgers, pdegen, tmp_path):
    (tmp_path / "own.toml").write_text(EXPERIMENT)
    outcome = pdegen("run", "own.toml", "--plugin", example, "--data", burgers, "--out", "run")
    assert outcome.status == 0, outcome.err
    (line,) = re.findall("pdegen run .*", (tmp_path / "run/report.md").read_text("utf-8"))
    in_another_process()
    words = shlex.split(line.replace("\\", "").rstrip("`"))[1:]
    words[words.index("experiment.toml")] = "run/experiment.toml"
    assert pdegen(*words, "--out", "again").status == 0
    assert history(tmp_path / "again") == history(tmp_path / "run")


ONE_EACH = """
import os, sys
from operators import registry
from pdegen import load_plugin
for file in sys.argv[1:]:
    if os.fork() == 0:
        load_plugin(file)
        os._exit(0)
    os.wait()
"""


def test_a_name_of_the_project_cannot_be_taken_even_by_the_first_file(tmp_path):
    """In processes that have not imported the classes of the project."""
    names = {"optimizer": "adam", "schedule": "1cycle", "loss": "l2"}
    for kind, name in names.items():
        (tmp_path / f"{kind}.py").write_text(
            f"from operators.registry import register_{kind}\nclass Own: pass\n"
            f"register_{kind}({name!r}, Own)"
        )
    words = [sys.executable, "-c", ONE_EACH, *(tmp_path / f"{kind}.py" for kind in names)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    for kind, name in names.items():
        said = f"{kind}.py, line 3: ValueError: a{'n' if kind == 'optimizer' else ''} {kind} named"
        assert f"{said} {name!r} is already registered" in done.stderr
