"""The programs of the how-to pages run as they stand there."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.absent import absent
from tests.s3 import served

pytestmark = pytest.mark.slow


def program(root, name):
    text = (root / f"docs/how-to/{name}.md").read_text("utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))


def run(program, folder):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "package", "printed"),
    [("lightning", "lightning", r"tensor\(\d"), ("neuraloperator", "neuralop", r"validation_l2")],
)
def test_trainers_of_others_train_on_a_store(root, tmp_path, name, package, printed):
    if importlib.util.find_spec(package) is None:
        absent(f"{package} is not installed")
    assert re.search(printed, run(program(root, name), tmp_path))


def test_a_store_on_s3_opens(root, tmp_path):
    with served():
        made = "import pdegen; pdegen.generate('burgers-quick', samples=8, resolution=16, out={!r})"
        run(made.format("s3://data/darcy.zarr"), tmp_path)
        shown = program(root, "s3").replace("s3://bucket", "s3://data")
        assert "(sample: 8, x: 16)" in run(f"{shown}\nprint(dataset.u)", tmp_path)


def test_the_ten_tasks_are_done(root):
    done = subprocess.run(
        [sys.executable, str(root / "docs/ten_tasks.py")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\d+)\. .*: \d commands, \d+ s$", done.stdout, re.M) == [
        str(number) for number in range(1, 11)
    ]
