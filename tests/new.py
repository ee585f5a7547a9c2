"""What a new equation or operator of the project still lacks.

    python -m tests.new equation NAME
    python -m tests.new operator NAME

The tests need the first part of the list. The second part is for later: recorded tables, pictures
and measurements, each with the command that makes it. The exit status is 1 while the first part
lacks something.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNBOUNDED = {"airfoil"}  # its samples take minutes
UNPLACED = {"neuraloperator"}  # its modules are those of another package


@dataclass(frozen=True)
class Step:
    """A part of a new equation or operator.

    Args:
        what: The part, and its file or the command that makes it.
        done: Whether it is there.
        needed: Whether the tests need it; other parts can follow later.
    """

    what: str
    done: bool
    needed: bool = False


def equation(name: str, root: Path = ROOT) -> Iterator[Step]:
    """The parts of an equation, found in the files of a checkout."""
    module = name.replace("-", "_")
    recipes = recipes_of(name, root)
    shown = recipes or [name]

    def have(pattern: str) -> bool:
        """Whether each recipe has its file, in whose path {} stands for the name."""
        return bool(recipes) and all((root / pattern.format(one)).exists() for one in recipes)

    yield Step(
        f"pdegen/equations/{module}/__init__.py and problem.py: a class with @equation and "
        f'equation: Literal["{name}"]',
        (root / f"pdegen/equations/{module}/__init__.py").exists()
        and f'Literal["{name}"]' in text(root / f"pdegen/equations/{module}/problem.py"),
        needed=True,
    )
    yield Step(
        "latex of that class: the equation in LaTeX, for reports and cards",
        "def latex(self)" in text(root / f"pdegen/equations/{module}/problem.py"),
        needed=True,
    )
    yield Step(
        f'datasets/{shown[0]}.toml: a recipe with equation = "{name}"', bool(recipes), needed=True
    )
    yield Step(
        f"{listed('datasets/{}.md', shown)}: what the recipe makes", have("datasets/{}.md"),
        needed=True,
    )  # fmt: skip
    yield Step(
        f"tests/pdegen/test_{module}.py: an exact solution, the observed order, an invariant, a "
        "refusal",
        any((root / "tests/pdegen").glob(f"test_{module}*.py")),
        needed=True,
    )
    bounds = text(root / "tests/pdegen/test_power.py").partition("BOUNDED = (")[2].partition(")")[0]
    yield Step(
        f"{shown[0]} in BOUNDED of tests/pdegen/test_power.py: each bound has a wrong store",
        any(f'"{one}"' in bounds for one in recipes) or name in UNBOUNDED,
        needed=True,
    )
    yield recorded_keys(f"problem.equation = {name}", root)
    drawn = all(is_drawn(one, root) for one in recipes) and bool(recipes)
    yield Step(f"pictures of the gallery: python docs/gallery/draw.py {' '.join(shown)}", drawn)
    rows = text(root / "datasets/README.md")
    yield Step(
        "rows of the recipes in datasets/README.md; until then the gallery shows their headlines",
        bool(recipes) and all(f"| [{one}]({one}.md) | " in rows for one in recipes),
    )
    yield from growth("equations", name, root)


def operator(name: str, root: Path = ROOT) -> Iterator[Step]:
    """The parts of an operator, found in the files of a checkout."""
    module = name.replace("-", "_")
    registered = re.search(
        rf'^register\("{name}", (\w+)', text(root / "operators/registry.py"), re.M
    )
    yield Step(
        f"operators/models/{module}.py, and in operators/registry.py its import and "
        f'register("{name}", CLASS)',
        registered is not None,
        needed=True,
    )
    page = text(root / "docs/operators/index.md")
    yield Step(
        "docs/operators/index.md: a row in each of the first and the last table",
        len(re.findall(rf"^\| `{name}` \|", page, re.M)) == 2,
        needed=True,
    )
    tests = (root / "tests/operators").glob("test_*.py")
    yield Step(
        f"tests/operators/test_{module}.py, or a row in test_released.py: an independent "
        "computation of the same map",
        any(file.stem == f"test_{module}" or f'"{name}"' in text(file) for file in tests),
        needed=True,
    )
    yield Step(
        "places.toml, where its numbers arrive: python -m tests.operators.test_places",
        f'case = "{name} ' in text(root / "tests/operators/places.toml")
        or f'case = "{name}"' in text(root / "tests/operators/places.toml")
        or name in UNPLACED,
        needed=True,
    )
    yield recorded_keys(f"model.name = {name}", root)
    yield Step(
        "starts.toml, the scale of the weights: python -m tests.operators.test_starts",
        f"\n[{name}]\n" in text(root / "tests/operators/starts.toml"),
    )
    yield Step(
        "presets.toml, if the class has presets: python -m tests.operators.test_settings",
        f"\n[{name}]\n" in text(root / "tests/operators/presets.toml")
        or not _has_presets(registered, root),
    )
    yield Step(
        f"a picture of the gallery: python docs/gallery/draw.py {name}",
        (root / f"docs/pictures/operators/{name}.png").exists(),
    )
    yield Step(
        "docs/operators/index.md, How they work: the page that explains it",
        len(re.findall(rf"`{name}`", page)) > 2,
    )
    yield Step(
        "a row in pipelines/config/benchmarks/standard.toml",
        f'name = "{name}"' in text(root / "pipelines/config/benchmarks/standard.toml"),
    )
    yield from growth("operators", name, root)


def growth(kind: str, name: str, root: Path) -> Iterator[Step]:
    """The growth of time and memory with the number of points: theory, then measurement."""
    case = rf'"{name}(, \w+)?"'  # an equation may have several cases: "NAME, line"
    stated = re.search(rf"^    {case}: ", text(root / f"benchmarks/growth/{kind}.py"), re.M)
    yield Step(f"growth in theory: a line in benchmarks/growth/{kind}.py", stated is not None)
    yield Step(
        f"growth as measured: python -m benchmarks.growth --only {name}, then the table in "
        "docs/results/growth.md",
        re.search(rf'"case": {case}', text(root / "benchmarks/results/growth.jsonl")) is not None,
    )


def recorded_keys(owner: str, root: Path) -> Step:
    """The defaults and bounds of the keys in the table that keeps them."""
    return Step(
        "keys.txt, the defaults and bounds of its keys: python -m tests.pipelines.test_all_keys",
        f"{owner} |" in text(root / "tests/pipelines/keys.txt")
        or f"{owner}, " in text(root / "tests/pipelines/keys.txt"),
    )


def recipes_of(equation: str, root: Path) -> list[str]:
    """The recipes of an equation, from their texts."""
    tables = ((path.stem, tomllib.loads(text(path))) for path in (root / "datasets").glob("*.toml"))
    return sorted(name for name, table in tables if table["problem"]["equation"] == equation)


def is_drawn(recipe: str, root: Path) -> bool:
    """Whether a recipe or the full form of a small one has a picture."""
    names, pictures = (recipe, recipe.removesuffix("-quick")), root / "docs/pictures"
    return any((pictures / f"{place}{n}.png").exists() for n in names for place in ("", "recipes/"))


def _has_presets(registered: re.Match[str] | None, root: Path) -> bool:
    """Whether the file that defines a registered class assigns `presets`."""
    if registered is None:
        return True
    files = (text(path) for path in (root / "operators/models").glob("*.py"))
    return any(
        f"class {registered[1]}(" in code and re.search(r"^    presets\b", code, re.M)
        for code in files
    )


def listed(pattern: str, names: list[str]) -> str:
    return ", ".join(pattern.format(name) for name in names)


def text(path: Path) -> str:
    """The text of a file; empty if there is none."""
    return path.read_text("utf-8") if path.exists() else ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.new", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("kind", choices=("equation", "operator"))
    parser.add_argument("name", metavar="NAME", help="as recipes or experiments name it")
    words = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", words.name):
        parser.error(f"NAME must be lower-case words joined by -, got {words.name!r}")
    steps = list({"equation": equation, "operator": operator}[words.kind](words.name))
    for needed, title in ((True, "Needed by the tests"), (False, "Later")):
        print(title)
        for step in steps:
            if step.needed == needed:
                print(f"  [{'x' if step.done else ' '}] {step.what}")
    print("A change that users see also has a line in CHANGELOG.md.")
    return int(any(step.needed and not step.done for step in steps))


if __name__ == "__main__":
    sys.exit(main())
