"""How commands start: what they do not need is not imported."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

from pipelines.cli import FAILED, WRONG_REQUEST
from pipelines.cli.common import app
from tests.pipelines.command import SMALL, quietly

SLOW = {"torch", "numba", "dask", "distributed", "matplotlib", "xarray", "h5py", "pandas",
        "mlflow", "tensorboard", "pyarrow"}  # fmt: skip
ALONE = """
import json, sys
from pipelines.cli import main
try:
    main()
finally:
    print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def imported(*words, status=0):
    """The packages that a command imports, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", ALONE, *map(str, words)], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == status, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_neither_arrays_nor_stores():
    assert not imported("--help") & {*SLOW, "numpy", "scipy", "zarr", "fsspec"}


def test_recipes_are_listed_without_pytorch():
    assert not imported("recipes") & SLOW


def test_a_store_is_made_and_checked_without_what_others_need(tmp_path):
    store = tmp_path / "store.zarr"
    assert not imported("generate", "burgers-quick", *SMALL, "--out", store) & SLOW
    assert not imported("info", store) & SLOW
    assert not imported("verify", store) & SLOW


def test_a_store_of_darcy_flow_is_checked_without_its_solver(tmp_path):
    quietly("generate", "darcy-quick", "--samples", 12, "--resolution", 13, "--set", "modes=13",
            "--out", tmp_path / "store.zarr")  # fmt: skip
    assert not imported("verify", tmp_path / "store.zarr") & SLOW


def test_a_wrong_request_is_refused_without_what_others_need():
    assert not imported("generate", "nosuch", status=2) & SLOW


def test_typer_need_not_compile_options():
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    commands = [command.callback for group in groups for command in group.registered_commands]
    assert len(commands) > 15
    for command in commands:
        assert not [one for one in command.__annotations__.values() if isinstance(one, str)]


@pytest.mark.parametrize("name", sorted(WRONG_REQUEST | FAILED))
def test_errors_that_are_explained_exist(name):
    module, _, word = name.rpartition(".")
    kind = getattr(import_module(module), word)
    assert issubclass(kind, Exception)
    assert (kind.__module__, kind.__qualname__) == (module, word)  # where it is defined


def test_the_tab_key_needs_neither_arrays_nor_stores(monkeypatch):
    monkeypatch.setenv("_PDEGEN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "pdegen benchmark quick --only ")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert not imported() & {*SLOW, "numpy", "scipy", "zarr", "fsspec"}


@pytest.mark.parametrize("words", ["experiments", "benchmarks", "noise-kinds"])
def test_names_are_listed_without_pytorch(words):
    assert not imported(words) & SLOW
