"""Values are passed on: who has a value of a name gives it to whom takes one of the same name.

An optional argument that a call forgets is silently its default: the processor for a device, 0 for
a seed, no weights.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.structure import checkout, structures

# methods of tensors and of figures that have the names of our functions
FOREIGN = {"softmax", "legend"}
# the spread of an estimate is not that of its prior
UNRELATED = {"Estimate"}
# (file, caller, callee, argument) where the value is not meant, and why
OTHERS = {
    ("pdegen/equations/base.py", "compute", "solve_in_blocks", "device"): "there is none",
    ("pipelines/cli/studies.py", "study_resolution_command", "benchmark_command", "plugin"):
        "plugins were loaded with the words of the command",
    ("operators/models/gaot.py", "__init__", "Positions", "lattice"): "points of the lattice",
    ("operators/nn/attention.py", "forward", "nystrom", "mask"): "it takes none",
    ("operators/nn/attention.py", "nystrom", "softmax", "mask"): "of all landmarks",
    ("pipelines/reports/figures.py", "_decimal", "_power_of_ten", "position"):
        "a formatter of Matplotlib, whose position is not used",
    ("pipelines/runs/model_folder.py", "recipe_text", "RecipeText", "recipe"): "a name, not a text",
    ("pipelines/reports/noise_table.py", "failure", "Cell", "at"): "the constant is of all levels",
}  # fmt: skip


@dataclass(frozen=True)
class Callee:
    """A function, method or dataclass: names of its arguments, and of those with a default."""

    arguments: tuple[str, ...]
    optional: frozenset[str]


def callee(node: ast.FunctionDef | ast.ClassDef) -> Callee | None:
    if isinstance(node, ast.ClassDef):
        if not any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            return None
        fields = [
            (one.target.id, one.value)
            for one in node.body
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and "ClassVar" not in ast.unparse(one.annotation)
        ]
        return Callee(
            tuple(name for name, _ in fields), frozenset(name for name, value in fields if value)
        )
    arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    optional = set(arguments[len(arguments) - len(node.args.defaults) :])
    optional |= {
        one.arg
        for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if value
    }
    bound = arguments[:1] in (["self"], ["cls"])
    return Callee(tuple(arguments[bound:]), frozenset(optional))


def callees(trees: dict[str, ast.Module]) -> dict[str, Callee]:
    """Those whose name no other has."""
    found = defaultdict[str, list[Callee | None]](list)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name].append(callee(node))
    return {name: those[0] for name, those in found.items() if len(those) == 1 and those[0]}


def forgotten(trees: dict[str, ast.Module]) -> Iterator[tuple[str, str, str, str]]:
    """(file, caller, callee, argument) of each call that does not pass on an argument."""
    known = callees(trees)
    for file, tree in trees.items():
        for caller in ast.walk(tree):
            if not isinstance(caller, ast.FunctionDef):
                continue
            values = caller.args.posonlyargs + caller.args.args + caller.args.kwonlyargs
            own = {one.arg for one in values}
            for call in ast.walk(caller):
                if not isinstance(call, ast.Call):
                    continue
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                starred = any(isinstance(one, ast.Starred) for one in call.args)
                if name not in known or starred or any(k.arg is None for k in call.keywords):
                    continue
                if isinstance(call.func, ast.Attribute) and name in FOREIGN:
                    continue
                given = {*known[name].arguments[: len(call.args)]}
                given |= {str(keyword.arg) for keyword in call.keywords}
                for argument in sorted(known[name].optional & own - given):
                    yield file, caller.name, name, argument


@pytest.fixture(scope="module")
def trees():
    return {
        str(path): tree
        for structure in structures(checkout()).values()
        for path, tree in structure.trees.items()
    }


def test_arguments_of_one_name_are_passed_on(trees):
    assert {one for one in forgotten(trees) if one[2] not in UNRELATED} == OTHERS.keys()


def test_an_argument_that_is_forgotten_is_found():
    tree = ast.parse(
        "def f(x, seed=0): ...\n"
        "def g(seed): return f(1)\n"
        "def h(seed): return f(1, seed), f(x=1, seed=seed), f(*seed)\n"
    )
    assert list(forgotten({"m.py": tree})) == [("m.py", "g", "f", "seed")]
