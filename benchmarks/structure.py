"""The structure of the packages: `python -m benchmarks.structure [--against COMMIT ...]`.

A room is a module or a folder directly in a package. An arrow is an import of one room by another,
anywhere in its code; it is a back arrow if the imported room also leads to the importing one.
`Floors` is the number of rooms on the longest path along the arrows. Lines, `Any` as a type and
`fmt: skip` are counted in all modules; docstrings and their doctests in public classes and
functions. Concepts are the public classes and functions of modules, options the options of
commands, and keys the fields of declarations (without the keys of operators, which are arguments
of their constructors). The lines of tests are counted once, for all packages.

Four figures say how much a reader must put together: circles of modules that import each other,
modules with one importer (without those that a registry or a package lists), private functions
of at most eight lines that their module calls once (methods not counted), and functions per 1,000
lines. A module is too long if it has over 700 lines and two groups of definitions that never name
each other.

With `--against`, each figure stands beside those of earlier commits of this repository.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar

ROOT = Path(__file__).parents[1]
PACKAGES = ("pdegen", "operators", "pipelines")
TESTS = "tests"
DECLARATION = "Strict"  # the base class of declarations
MODULE_LINES, FUNCTION_LINES = 700, 60  # longer ones are listed
GROUP = 3  # definitions of a group that could be a module
SMALL = 8  # lines of a function that could stand at its call
LISTS = ("__init__", "api", "registry")  # names of modules that import others only to list them

Source = Mapping[PurePosixPath, str]


def checkout(folders: Sequence[str] = PACKAGES) -> Source:
    """Source of the modules in the working tree."""
    return {
        PurePosixPath(path.relative_to(ROOT).as_posix()): path.read_text("utf-8")
        for package in folders
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def committed(commit: str, folders: Sequence[str] = PACKAGES) -> Source:
    """Source of the modules in a commit."""
    data = subprocess.run(
        ["git", "archive", commit, *folders], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {
            PurePosixPath(member.name): file.read().decode()
            for member in archive
            if member.name.endswith(".py") and (file := archive.extractfile(member))
        }


@dataclass(frozen=True)
class Figures:
    """Counts of a package, or of all packages together."""

    rooms: int
    arrows: int
    floors: int
    back_arrows: int
    modules: int
    lines: int
    long_modules: int
    long_functions: int
    concepts: int
    options: int
    keys: int
    any_per_1000_lines: float
    fmt_skip: int
    docstrings: int
    with_examples: int
    docstring_percent: float
    functions_per_1000_lines: float
    one_importer: int
    one_caller: int
    circles: int


@dataclass(frozen=True)
class Structure:
    """Rooms, arrows and long parts of one package.

    Args:
        package: Name of the package.
        source: Source of its modules by path from the root.

    Example:
        >>> from pathlib import PurePosixPath
        >>> source = {PurePosixPath("p/a.py"): "from p.b import f", PurePosixPath("p/b.py"): ""}
        >>> structure = Structure("p", source)
        >>> structure.arrows, structure.floors, structure.back_arrows
        ({('a', 'b')}, 2, set())
    """

    package: str
    source: Source

    @cached_property
    def trees(self) -> dict[PurePosixPath, ast.Module]:
        return {path: ast.parse(text) for path, text in self.source.items()}

    @cached_property
    def rooms(self) -> set[str]:
        return {room for path in self.source if (room := _room(path)) is not None}

    @cached_property
    def arrows(self) -> set[tuple[str, str]]:
        """Pairs (importing room, imported room)."""
        return {
            (room, imported)
            for path, tree in self.trees.items()
            if (room := _room(path)) is not None
            for imported in _imported(tree, self.package)
            if imported in self.rooms and imported != room
        }

    @cached_property
    def back_arrows(self) -> set[tuple[str, str]]:
        """Arrows whose imported room also leads to the importing one."""
        return {(one, other) for one, other in self.arrows if one in self._below(other)}

    @cached_property
    def floors(self) -> int:
        forward = self.arrows - self.back_arrows
        heights = dict.fromkeys(self.rooms, 1)
        for _ in self.rooms:
            for one, other in forward:
                heights[one] = max(heights[one], heights[other] + 1)
        return max(heights.values(), default=0)

    def _below(self, room: str) -> set[str]:
        reached, ahead = set[str](), [room]
        while ahead:
            current = ahead.pop()
            new = {other for one, other in self.arrows if one == current} - reached
            reached |= new
            ahead += new
        return reached

    @cached_property
    def long_modules(self) -> dict[str, int]:
        """Lines of the modules that are longer than `MODULE_LINES` and hold two ideas."""
        lines = {path: len(text.splitlines()) for path, text in self.source.items()}
        long = {path: n for path, n in lines.items() if n > MODULE_LINES}
        return {str(path): n for path, n in long.items() if len(groups(self.trees[path])) > 1}

    def importers(self, types: bool) -> dict[PurePosixPath, set[PurePosixPath]]:
        """The modules of this package that import each module, in functions too.

        Args:
            types: Whether imports for types alone (`TYPE_CHECKING`) count.
        """
        places = {_dotted(path): path for path in self.source}
        importers: dict[PurePosixPath, set[PurePosixPath]] = {path: set() for path in self.source}
        for path, tree in self.trees.items():
            for name in _names_imported(tree, types):
                place = places.get(name) or places.get(name.rpartition(".")[0])
                if place is not None and place != path:
                    importers[place].add(path)
        return importers

    @cached_property
    def one_importer(self) -> list[str]:
        """Modules that one other module imports, which does not only list them."""
        return [
            str(path)
            for path, by in self.importers(types=False).items()
            if path.stem != "__init__" and len(by) == 1 and next(iter(by)).stem not in LISTS
        ]

    @cached_property
    def circles(self) -> list[list[str]]:
        """Groups of modules each of which leads to all others of the group."""
        importers = self.importers(types=True)
        above = {path: _reached(path, importers) for path in self.source}
        together = {
            frozenset(other for other in above[path] if path in above[other]) for path in above
        }
        return sorted(sorted(map(str, group)) for group in together if group)

    @cached_property
    def one_caller(self) -> list[str]:
        """Private functions of at most `SMALL` lines that their module names once."""
        found = list[str]()
        for path, tree in self.trees.items():
            named = Counter(_uses(tree))
            found += [
                f"{path}:{name}"
                for node in tree.body
                if isinstance(node, ast.FunctionDef) and (name := node.name).startswith("_")
                if named[name] == 1 and _length(node) <= SMALL
            ]
        return found

    @cached_property
    def long_functions(self) -> dict[str, int]:
        """Functions of more than `FUNCTION_LINES` lines, without their docstrings."""
        return {
            f"{path}:{name}": n
            for path, tree in self.trees.items()
            for name, node in _functions(tree)
            if (n := _length(node)) > FUNCTION_LINES
        }

    @cached_property
    def concepts(self) -> list[str]:
        """Public classes and functions of the modules."""
        return [
            f"{path}:{node.name}"
            for path, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        ]

    @cached_property
    def options(self) -> list[str]:
        """Options of the commands: all arguments of their functions except `typer.Argument`."""
        return [
            f"{name}:{argument.arg}"
            for tree in self.trees.values()
            for name, node in _functions(tree)
            if any(_called(decorator) == "command" for decorator in node.decorator_list)
            for argument in (*node.args.args, *node.args.kwonlyargs)
            if "typer.Argument" not in ast.unparse(argument)
        ]

    @cached_property
    def keys(self) -> list[str]:
        """Fields of the declarations: direct and indirect subclasses of `Strict`."""
        classes = [
            node
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        ]
        declared, before = {DECLARATION}, 0
        while len(declared) > before:
            before = len(declared)
            declared |= {c.name for c in classes if declared & {_called(b) for b in c.bases}}
        return [
            f"{node.name}.{field.target.id}"
            for node in classes
            if node.name in declared
            for field in node.body
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and "ClassVar" not in ast.unparse(field.annotation)
        ]

    @cached_property
    def figures(self) -> Figures:
        texts = list(self.source.values())
        lines = sum(len(text.splitlines()) for text in texts)
        docstrings = [text for tree in self.trees.values() for text in _docstrings(tree)]
        functions = sum(1 for tree in self.trees.values() for _ in _functions(tree))
        return Figures(
            rooms=len(self.rooms),
            arrows=len(self.arrows),
            floors=self.floors,
            back_arrows=len(self.back_arrows),
            modules=len(texts),
            lines=lines,
            long_modules=len(self.long_modules),
            long_functions=len(self.long_functions),
            concepts=len(self.concepts),
            options=len(self.options),
            keys=len(self.keys),
            any_per_1000_lines=round(1000 * sum(map(_anys, self.trees.values())) / lines, 1),
            fmt_skip=sum(text.count("# fmt: skip") for text in texts),
            docstrings=len(docstrings),
            with_examples=sum(">>> " in text for text in docstrings),
            docstring_percent=round(
                100 * sum(map(_docstring_lines, self.trees.values())) / lines, 1
            ),
            functions_per_1000_lines=round(1000 * functions / lines, 1),
            one_importer=len(self.one_importer),
            one_caller=len(self.one_caller),
            circles=len(self.circles),
        )


def structures(source: Source) -> dict[str, Structure]:
    """The structure of each package."""
    return {
        package: Structure(
            package, {path: text for path, text in source.items() if path.parts[0] == package}
        )
        for package in PACKAGES
    }


def groups(tree: ast.Module) -> list[set[str]]:
    """Groups of a module's definitions that never name a definition of another group.

    Groups with fewer than `GROUP` functions and classes are left out.

    >>> pair = "def {0}(): ...\ndef {1}(): {0}()\ndef {2}(): {1}()\n"
    >>> [sorted(g) for g in groups(ast.parse(pair.format(*"abc") + pair.format(*"xyz")))]
    [['a', 'b', 'c'], ['x', 'y', 'z']]
    """
    parts, larger = dict[str, ast.stmt](), set[str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts[node.name] = node
            larger.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts |= {name: node for target in targets for name in _uses(target)}
    near: dict[str, set[str]] = {name: {name} for name in parts}
    for name, node in parts.items():
        for other in set(_uses(node)) & parts.keys():
            near[name].add(other)
            near[other].add(name)
    found = list[set[str]]()
    for name in parts:
        if not any(name in group for group in found):
            found.append(_reached(name, near))
    return [group for group in found if len(group & larger) >= GROUP]


_Place = TypeVar("_Place")


def _reached(start: _Place, near: Mapping[_Place, set[_Place]]) -> set[_Place]:
    """What some steps lead to, with the start if they lead back to it."""
    reached, ahead = set[_Place](), [start]
    while ahead:
        new = near[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def _uses(tree: ast.AST) -> Iterator[str]:
    """Names and attributes in a tree, also in annotations that are strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _dotted(path: PurePosixPath) -> str:
    """The name of a module."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _names_imported(tree: ast.Module, types: bool) -> Iterator[str]:
    """Dotted names of imports, with those for types alone (`TYPE_CHECKING`) or without them."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            ahead += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        ahead += ast.iter_child_nodes(node)


def _docstring_lines(tree: ast.Module) -> int:
    """Lines of the docstrings of a module and of everything in it."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = [
        node.body[0]
        for node in ast.walk(tree)
        if isinstance(node, kinds) and ast.get_docstring(node) is not None
    ]
    return sum((text.end_lineno or text.lineno) - text.lineno + 1 for text in texts)


def _room(path: PurePosixPath) -> str | None:
    """The room of a module; None for the package's own `__init__`."""
    parts = path.with_suffix("").parts
    return None if parts[1] == "__init__" else parts[1]


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == package and len(parts) > 1:
                yield parts[1]


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    text = node.body[0]
    return lines - ((text.end_lineno or text.lineno) - text.lineno + 1)


def _called(node: ast.expr) -> str:
    """Last name of an expression that is called, subscripted or named.

    It is `command` for `cli.command(...)`.
    """
    if isinstance(node, ast.Call):
        return _called(node.func)
    if isinstance(node, ast.Subscript):
        return _called(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _anys(tree: ast.Module) -> int:
    """Number of uses of `Any` as a type."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of public classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node)
            if text:
                yield text


def total(parts: Mapping[str, Structure]) -> Figures:
    """The figures of all packages together."""
    figures = [part.figures for part in parts.values()]
    sums = {
        name: sum(getattr(part, name) for part in figures) for name in Figures.__dataclass_fields__
    }
    sums["floors"] = max(part.floors for part in figures)
    for share in ("any_per_1000_lines", "docstring_percent", "functions_per_1000_lines"):
        weighted = sum(getattr(part, share) * part.lines for part in figures)
        sums[share] = round(weighted / sums["lines"], 1)
    return Figures(**sums)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--against", action="append", default=[], metavar="COMMIT")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sources = {commit: committed(commit) for commit in arguments.against} | {"now": checkout()}
    parts_of = {when: structures(source) for when, source in sources.items()}
    figures = {
        when: {name: part.figures for name, part in parts.items()} | {"all": total(parts)}
        for when, parts in parts_of.items()
    }
    tests = {commit: committed(commit, [TESTS]) for commit in arguments.against}
    tests |= {"now": checkout([TESTS])}
    width = max(10, *map(len, parts_of))
    for name in (*PACKAGES, "all"):
        print(f"{name:26}" + "".join(f"{when:>{width}}" for when in parts_of))
        for figure in Figures.__dataclass_fields__:
            row = "".join(f"{getattr(figures[when][name], figure):>{width},}" for when in parts_of)
            print(f"  {figure.replace('_', ' '):24}{row}")
    lines = {when: sum(len(t.splitlines()) for t in one.values()) for when, one in tests.items()}
    print(f"{TESTS + ', lines':26}" + "".join(f"{n:>{width},}" for n in lines.values()))
    for package, part in parts_of["now"].items():
        for one, other in sorted(part.back_arrows):
            print(f"back arrow: {package}.{one} -> {package}.{other}")
        for circle in part.circles:
            print(f"circle: {', '.join(circle)}")
        for name, length in sorted((part.long_modules | part.long_functions).items()):
            print(f"{length:5} lines: {name}")
    if arguments.json:
        content = {
            when: {name: asdict(part) for name, part in parts.items()}
            for when, parts in figures.items()
        }
        content = {when: {**one, TESTS: {"lines": lines[when]}} for when, one in content.items()}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


_Formatter = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
