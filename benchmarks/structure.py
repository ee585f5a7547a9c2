"""The structure of the packages: `python -m benchmarks.structure [--against COMMIT ...]`.

A room is a module or a folder directly in a package. An arrow is an import of one room by another,
anywhere in its code; it is a back arrow if the imported room also leads to the importing one.
`Floors` is the number of rooms on the longest path along the arrows. Lines, `Any` as a type and
`fmt: skip` are counted in all modules; docstrings and their doctests in public classes and
functions. Concepts are the public classes and functions of modules, options the options of
commands, and keys the fields of declarations (without the keys of operators, which are arguments
of their constructors). The lines of tests are counted once, for all packages.

With `--against`, each figure stands beside those of earlier commits of this repository.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGES = ("pdegen", "operators", "pipelines")
TESTS = "tests"
DECLARATION = "Strict"  # the base class of declarations
MODULE_LINES, FUNCTION_LINES = 400, 60  # longer ones are listed

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
        """Modules of more than `MODULE_LINES` lines."""
        lines = {str(path): len(text.splitlines()) for path, text in self.source.items()}
        return {name: n for name, n in lines.items() if n > MODULE_LINES}

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
        )


def structures(source: Source) -> dict[str, Structure]:
    """The structure of each package."""
    return {
        package: Structure(
            package, {path: text for path, text in source.items() if path.parts[0] == package}
        )
        for package in PACKAGES
    }


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


def _total(parts: Mapping[str, Structure]) -> Figures:
    figures = [part.figures for part in parts.values()]
    total = {
        name: sum(getattr(part, name) for part in figures) for name in Figures.__dataclass_fields__
    }
    anys = sum(part.any_per_1000_lines * part.lines for part in figures)
    total["floors"] = max(part.floors for part in figures)
    return Figures(**{**total, "any_per_1000_lines": round(anys / total["lines"], 1)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--against", action="append", default=[], metavar="COMMIT")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sources = {commit: committed(commit) for commit in arguments.against} | {"now": checkout()}
    parts_of = {when: structures(source) for when, source in sources.items()}
    figures = {
        when: {name: part.figures for name, part in parts.items()} | {"all": _total(parts)}
        for when, parts in parts_of.items()
    }
    tests = {commit: committed(commit, [TESTS]) for commit in arguments.against}
    tests |= {"now": checkout([TESTS])}
    width = max(10, *map(len, parts_of))
    for name in (*PACKAGES, "all"):
        print(f"{name:22}" + "".join(f"{when:>{width}}" for when in parts_of))
        for figure in Figures.__dataclass_fields__:
            row = "".join(f"{getattr(figures[when][name], figure):>{width},}" for when in parts_of)
            print(f"  {figure.replace('_', ' '):20}{row}")
    lines = {when: sum(len(t.splitlines()) for t in one.values()) for when, one in tests.items()}
    print(f"{TESTS + ', lines':22}" + "".join(f"{n:>{width},}" for n in lines.values()))
    for package, part in parts_of["now"].items():
        for one, other in sorted(part.back_arrows):
            print(f"back arrow: {package}.{one} -> {package}.{other}")
        for name, lines in sorted((part.long_modules | part.long_functions).items()):
            print(f"{lines:5} lines: {name}")
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
