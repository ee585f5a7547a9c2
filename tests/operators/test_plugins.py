"""Classes of users: those of installed packages, and what a checkpoint needs."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from operators.models.fno import FNO
from operators.plugins import (
    EntryPointError,
    Registry,
    fault_of_class,
    file_of,
    recorded_file,
)
from operators.registry import OPERATORS, build_operator
from operators.training.checkpoint import CheckpointError, check_checkpoint, saving_checkpoint
from operators.transforms import Normalizer, Predictor
from pdegen.plugins import load_plugin, module_of, path_of
from pipelines.config.declared import parse_model
from tests.plugins import registered_alone

PACKAGE = """
from operators.models.fno import FNO
from operators.registry import register

class Mine(FNO):
    pass
"""
POINTS = """
[pdegen.operators]
mine = package_of_mine:Mine
registered = package_of_mine_that_registers
silent = package_of_mine
broken = no_such_package
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with entry points for operators."""
    (tmp_path / "package_of_mine.py").write_text(PACKAGE)
    (tmp_path / "package_of_mine_that_registers.py").write_text(
        f"{PACKAGE}\nregister('registered', Mine)"
    )
    folder = tmp_path / "package_of_mine-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: package-of-mine\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with registered_alone():
        yield
    for name in ("package_of_mine", "package_of_mine_that_registers"):
        sys.modules.pop(name, None)


def test_an_installed_package_brings_its_operator_when_it_is_named(installed):
    assert {"mine", "registered", "silent", "broken"} <= set(OPERATORS.known)
    assert "mine" not in list(OPERATORS)
    assert "package_of_mine" not in sys.modules
    for name in ("mine", "registered"):
        model = parse_model({"name": name, "width": 8, "modes": 4})
        assert type(model.build(1, 1, 1)).__name__ == "Mine"
    described = {"model": {"name": "mine"}, "in_channels": 1, "out_channels": 1, "dim": 1}
    assert isinstance(build_operator(described), FNO)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "operator broken of no_such_package: ModuleNotFoundError: No module named"),
        ("silent", "operator silent of package_of_mine: its module does not register it"),
    ],
)
def test_an_entry_point_that_fails_is_one_line(installed, name, said):
    with pytest.raises(EntryPointError, match=said):
        parse_model({"name": name})
    assert EntryPointError.exit_status == 2


def test_a_registered_name_loads_no_entry_point():
    registry = Registry[type]("loss", lambda operator: operator)
    assert registry.group == "pdegen.losses"
    registry.add("x", FNO)
    assert registry["x"] is FNO
    with pytest.raises(ValueError, match="a loss named 'x' is already registered"):
        registry.add("x", FNO)
    assert "y" not in registry
    with pytest.raises(KeyError):
        registry["y"]


def test_a_class_that_a_program_imported_is_compared_by_its_file(tmp_path):
    file = {"name": "fno.py", "sha256": "0" * 64}
    fault = fault_of_class("operator fno", FNO, file, tmp_path)
    assert fault is not None
    assert "operator fno comes from the file fno.py (SHA-256 000000000000...), not from" in fault


@pytest.mark.parametrize("plugins", [3, {"operator": 3}, {"operator": {"name": "x"}}])
def test_a_malformed_record_is_an_error(plugins):
    with pytest.raises(ValueError, match="its entry plugins has no name and sha256"):
        recorded_file({"plugins": plugins}, "operator")
    assert recorded_file({}, "operator") is None


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("../own.py", "0" * 64),
        ("/tmp/own.py", "0" * 64),
        ("..\\own.py", "0" * 64),
        ("own\n.py", "0" * 64),
        ('own", x="', "0" * 64),
        ("own'.py", "0" * 64),
        ("own`.py", "0" * 64),
        ("", "0" * 64),
        ("own.py", "0" * 63),
        ("own.py", "../" * 21 + "x"),
        ("own.py", "A" * 64),
        ("own.py", "0" * 64 + "\n"),
    ],
)
def test_a_checkpoint_cannot_name_a_path_or_code_as_its_file(tmp_path, name, digest):
    """Cards, commands and copies are named after it."""
    path = tmp_path / "best.safetensors"
    file = {"name": name, "sha256": digest}
    with pytest.raises(ValueError, match="its entry plugins has an invalid ") as error:
        recorded_file({"plugins": {"operator": file}}, "operator")
    assert "\n" not in str(error.value)
    unit = Normalizer.identity(1)
    predictor = Predictor(FNO(width=4, modes=2, depth=1), unit, Normalizer.identity(1))
    for kind in ("operator", "loss"):
        saving_checkpoint(path, predictor, {"plugins": {kind: file}})()
        with pytest.raises(CheckpointError, match="its entry plugins has an invalid "):
            check_checkpoint(path)


def test_a_name_with_spaces_is_recorded_and_one_with_quotes_is_made_plain(tmp_path):
    with registered_alone():
        for name, plain in (("my own.py", "my own.py"), ("it's `mine`.py", "it_s _mine_.py")):
            (tmp_path / name).write_text(
                "from operators.registry import register_loss\n"
                f"class Own: '{plain}'\nregister_loss({plain!r}, Own)"
            )
            file = load_plugin(str(tmp_path / name))
            record = {"plugins": {"loss": file_of(module_of(file).Own)}}
            assert recorded_file(record, "loss") == {"name": plain, "sha256": file.digest}


def test_a_package_with_a_name_like_that_of_the_project_is_not_of_it(tmp_path, monkeypatch):
    for name, expected in (("pdegen_heat", True), ("operatorship.more", True), ("pdegen.x", False)):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
        registered = type("Own", (), {"__module__": name})
        assert path_of(registered) == (module.__file__ if expected else None)
