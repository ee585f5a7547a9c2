"""How commands and test files start: what they do not need is not imported."""

import ast
import builtins
import json
import subprocess
import sys

import pytest

from benchmarks.structure import checkout
from pipelines.cli.common import app
from tests.pipelines.command import SMALL

SLOW = {"torch", "numba", "dask", "distributed", "matplotlib", "xarray", "h5py", "pandas",
        "mlflow", "tensorboard", "pyarrow"}  # fmt: skip
ALONE = """
import json, sys
from pipelines.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def imported(*words, status=0):
    """The modules that a command imports, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", ALONE, *map(str, words)], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == status, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_neither_arrays_nor_stores():
    assert not imported("--help") & {*SLOW, "numpy", "scipy", "zarr", "fsspec"}


def test_recipes_are_listed_without_what_stores_and_solvers_import():
    modules = imported("recipes")
    assert not modules & {*SLOW, "zarr", "fsspec"}
    # the package itself is cheap: it imports its parts at their first use
    assert {name for name in modules if name.startswith("scipy.") and "_" not in name} == {
        "scipy.version"
    }


def test_a_store_is_made_and_checked_without_what_others_need(tmp_path):
    store = tmp_path / "store.zarr"
    assert not imported("generate", "burgers-quick", *SMALL, "--out", store) & SLOW
    assert not imported("info", store) & SLOW
    assert not imported("verify", store) & SLOW


@pytest.mark.parametrize(
    "words", ["generate", "run", "benchmark", "study resolution", "study samples", "study noise"]
)
def test_an_unknown_name_is_refused_without_what_others_need(words):
    assert not imported(*words.split(), "nosuch", status=2) & SLOW


def test_typer_need_not_compile_options():
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    commands = [command.callback for group in groups for command in group.registered_commands]
    assert len(commands) > 15
    for command in commands:
        assert not [one for one in command.__annotations__.values() if isinstance(one, str)]


def test_every_error_has_an_exit_status():
    """Those of bugs and those that another error explains have none: the command shows where."""
    nodes = [node for text in checkout().values() for node in ast.walk(ast.parse(text))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.bases]
    statuses = {}
    for one in classes:
        names = [base.id for base in one.bases if isinstance(base, ast.Name)]
        kinds = [getattr(builtins, name, object) for name in names]
        if kinds and all(issubclass(kind, Exception) for kind in kinds) and one.name[0] != "_":
            stated = [line.value for line in one.body if isinstance(line, ast.Assign)]
            statuses[one.name] = ast.literal_eval(stated[0]) if stated else None
    assert {name for name, status in statuses.items() if status is None} == {
        "ContractError", "DomainError", "HeadlineError", "Interrupted", "MetadataError",
        "SolveError", "Stopped", "TomlError", "TooLargeError",
    }  # fmt: skip
    assert {name for name, status in statuses.items() if status == 1} == {
        "Failed", "RankError", "SampleError", "TrainingError", "WorkerError", "WorkerLostError",
    }  # fmt: skip
    assert set(statuses.values()) == {None, 1, 2}


def test_the_tab_key_needs_neither_arrays_nor_stores(monkeypatch):
    monkeypatch.setenv("_PDEGEN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "pdegen benchmark quick --only ")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert not imported() & {*SLOW, "numpy", "scipy", "zarr", "fsspec"}


STARTED = """
import json, sys
import pytest

status = pytest.main(["-q", "tests/pdegen/test_toml.py"])
first = sorted(sys.modules)
import tests.operators.conftest, tests.pipelines.conftest
print("\\n" + json.dumps([status, first, sorted(sys.modules)]))
"""


def test_a_test_file_starts_without_what_others_need(root):
    done = subprocess.run(
        [sys.executable, "-c", STARTED], cwd=root, capture_output=True, text=True, check=True
    )
    status, alone, others = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    heavy = {"boto3", "dask", "matplotlib", "moto", "numba", "xarray", "zarr", "scipy.fft"}
    assert not set(alone) & {*heavy, "torch"}
    assert not [name for name in alone if name.startswith("pdegen.equations.")]
    assert not set(others) & heavy
