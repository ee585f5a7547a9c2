"""What is particular to an equation stays in its room: nothing outside imports it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("pdegen", "operators", "pipelines")


def rooms(root: Path) -> list[str]:
    return sorted(folder.parent.name for folder in (root / "pdegen/equations").glob("*/problem.py"))


def imports(path: Path) -> Iterator[str]:
    """All modules that a file imports, in functions too, and those it names to import_module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_outside_imports_the_room_of_an_equation(root, package):
    inside = root / "pdegen/equations"
    named = tuple(f"pdegen.equations.{room}" for room in rooms(root))
    assert len(named) >= 2
    found = {
        f"{path.relative_to(root)} imports {module}"
        for path in (root / package).rglob("*.py")
        for module in imports(path)
        if f"{module}.".startswith(tuple(f"{name}." for name in named))
        and not any((inside / room) in path.parents for room in rooms(root))
    }
    assert found == set()


def test_no_room_imports_another(root):
    shared = {path.stem for path in (root / "pdegen/equations").glob("*.py")}
    found = {
        f"{path.relative_to(root)} imports {module}"
        for room in rooms(root)
        for path in (root / "pdegen/equations" / room).rglob("*.py")
        for module in imports(path)
        if module.startswith("pdegen.equations.") and module.split(".")[2] not in {room, *shared}
    }
    assert found == set()
