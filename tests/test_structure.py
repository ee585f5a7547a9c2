"""How the packages are built: which way imports go, what is long, and what a reader joins."""

import ast
import importlib.util
from collections import Counter
from pathlib import PurePosixPath

import jaxtyping
import pytest
import torch

from benchmarks.structure import Structure, checkout, groups, structures, total
from operators.norms import relative_l2
from tests import checked

# figures of `python -m benchmarks.structure` that only fall, with their largest values of today
CEILINGS = {
    "circles": 0,
    "docstring_percent": 19.2,
    "functions_per_1000_lines": 62.5,
    "modules": 261,
    "one_caller": 171,
    "one_importer": 44,
}
ANY = {"pdegen": 5.3, "operators": 6.0, "pipelines": 8.0}  # of 1,000 lines, at most

# public classes of one name in several modules, and why the name stays
DOUBLED = {
    "Array": "an array of a foreign file, and one of a store: each in its own format",
    "Block": "a block of an operator lives with its operator",
    "Convolution": "a block of an operator lives with its operator",
    "Settings": "of a solver's process, and of a training: local to their modules",
    "Solution": "what a solver returns, one for each equation",
    "Step": "a step in time, and a step of training: the field's words",
}


def package(**modules):
    return {PurePosixPath(f"p/{name}.py"): text for name, text in modules.items()}


@pytest.fixture(scope="module")
def packages():
    """The structures of the packages, whose modules are parsed once."""
    return structures(checkout())


def test_no_import_goes_back(packages):
    for structure in packages.values():
        assert structure.back_arrows == set()


def test_no_long_module_holds_two_ideas_and_no_function_is_long(packages):
    for structure in packages.values():
        assert structure.long_modules == structure.long_functions == {}


@pytest.mark.parametrize("figure", CEILINGS)
def test_what_a_reader_must_put_together_does_not_grow(packages, figure):
    assert getattr(total(packages), figure) <= CEILINGS[figure]


def test_types_are_stated(packages):
    for name, structure in packages.items():
        assert structure.figures.any_per_1000_lines <= ANY[name]


def test_only_the_room_benchmarks_is_called_after_benches(root, packages):
    """`pdegen bench` and `pdegen benchmark` are commands; the code has one word for each thing."""
    sources = [structure.source for structure in packages.values()]
    paths = [path for source in sources for path in source if path.parts[1] != "cli"]
    assert [path for path in paths if "bench" in path.parts or path.stem == "bench"] == []
    rooms = [path.name for path in root.iterdir() if path.is_dir() and "bench" in path.name]
    assert rooms == ["benchmarks"]


def test_a_public_class_has_a_name_of_its_own(packages):
    found = Counter(
        node.name
        for structure in packages.values()
        for tree in structure.trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, times in found.items() if times > 1} == DOUBLED.keys()


def imports(tree):
    """Modules that a file imports, in functions too, and those that it names to import_module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))


def test_what_is_particular_to_an_equation_stays_in_its_room(root, packages):
    """Neither another package nor another equation imports it."""
    inside = PurePosixPath("pdegen/equations")
    rooms = {folder.parent.name for folder in (root / inside).glob("*/problem.py")}
    assert len(rooms) >= 2
    found = {
        f"{path} imports {module}"
        for structure in packages.values()
        for path, tree in structure.trees.items()
        for module in imports(tree)
        if module.startswith("pdegen.equations.")
        and (room := module.split(".")[2]) in rooms
        and inside / room not in path.parents
    }
    assert found == set()


def test_back_arrows_are_found_over_several_rooms_and_within_functions():
    source = package(
        a="from p.b import f", b="def f():\n    import p.c", c="import p.a", d="import p.a"
    )
    structure = Structure("p", source)
    assert structure.back_arrows == {("a", "b"), ("b", "c"), ("c", "a")}
    assert structure.floors == 2


THREE = "def {0}():\n    pass\n\n\ndef {1}():\n    {0}()\n\n\ndef {2}():\n    {1}()\n"


def test_long_parts_are_found():
    two = THREE.format(*"abc") + THREE.format(*"xyz")
    source = package(
        a=two + "# \n" * 700,
        b="def f():\n" + "    x = 1\n" * 60,
        c=THREE.format(*"abc") + "# \n" * 700,  # one idea
        d=two,
    )
    structure = Structure("p", source)
    assert structure.long_modules == {"p/a.py": 720}
    assert structure.long_functions == {"p/b.py:f": 61}


def test_a_constant_joins_the_functions_that_it_names():
    tree = ast.parse(THREE.format(*"abc") + THREE.format(*"xyz") + "TABLE = {1: c, 2: z}\n")
    assert len(groups(tree)) == 1


def test_what_a_reader_must_put_together_is_counted():
    source = package(
        a="from p.b import f\nfrom p.c import g",
        b="if TYPE_CHECKING:\n    from p.a import T",
        c='"""Doc."""\ndef _small(x):\n    return x\ndef g(): return _small(1)',
        d="import p.c",
    )
    structure = Structure("p", source)
    assert structure.circles == [["p/a.py", "p/b.py"]]
    assert structure.one_importer == ["p/b.py"]
    assert structure.one_caller == ["p/c.py:_small"]
    figures = structure.figures
    assert (figures.docstring_percent, figures.functions_per_1000_lines) == (11.1, 222.2)


def test_concepts_options_and_keys_are_counted():
    text = """
class Strict: ...
class Table(Strict):
    kind: ClassVar[str]
    size: int
    name: str = ""
class _Row(p.a.Table):
    more: int
class Other:
    no_key: int
@command("x", "an example")
def x_command(store: Annotated[str, typer.Argument()], out: Out, *, level: int = 0): ...
def _private(a): ...
"""
    structure = Structure("p", package(a=text))
    assert structure.keys == ["Table.size", "Table.name", "_Row.more"]
    assert structure.options == ["x_command:out", "x_command:level"]
    assert [one.partition(":")[2] for one in structure.concepts] == [
        "Strict", "Table", "Other", "x_command",
    ]  # fmt: skip


def test_modules_whose_shapes_are_checked_are_there():
    assert [name for name in checked.MODULES if importlib.util.find_spec(name) is None] == []


def test_shapes_are_checked_where_a_test_asks_for_it(request):
    u, target = torch.ones(2, 3), torch.ones(1, 3)
    assert relative_l2(u, target).shape == (2,)  # values are broadcast
    request.getfixturevalue("shapes")
    with pytest.raises(jaxtyping.TypeCheckError):
        relative_l2(u, target)
