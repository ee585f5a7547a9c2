"""Every Python command that a page names is taken by its program and runs at its smallest size.

Programs of `benchmarks` write their figures to a folder of the test. Commands that take minutes at
their smallest size run in `make validate`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import re
import runpy
import shlex
import sys
from typing import NamedTuple

import pytest

from benchmarks import history
from tests.pipelines.command import quietly
from tests.plain.recipes import SMALL

NAMED = re.compile(r"python -m ((?:benchmarks|tests)[\w.]*)((?: [^\s`|;)&#]+)*)")
FENCED = re.compile(r"^(`{3,})[^\n]*\n(.*?)^\1$", re.M | re.S)
INLINE = re.compile(r"`([^`]*python -m[^`]*)`")


class Run(NamedTuple):
    """The smallest form of a command.

    Args:
        words: What follows the module.
        slow: Whether it runs in `make validate` alone.
        needs: A package without which it does not run.
        store: A recipe, whose smallest store is STORE in `words`.
        verdict: Beginning of the message about a measurement that a busy machine exceeds.
    """

    words: str
    slow: bool = False
    needs: str = ""
    store: str = ""
    verdict: str = ""


# by module and first word, which is empty unless the program has several jobs
SMALLEST = {
    ("benchmarks.attention", "inf-sup"): Run("inf-sup", slow=True),
    ("benchmarks.attention", "energy"): Run("energy", slow=True),
    ("benchmarks.attention", "quadrature"): Run("quadrature", slow=True),
    ("benchmarks.coarse_darcy", ""): Run("darcy-quick --train 4 --test 2"),
    ("benchmarks.darcy", ""): Run("iterations", slow=True),
    ("benchmarks.darcy", "transforms"): Run("transforms", slow=True),
    ("benchmarks.digests", ""): Run("--rounds 1", slow=True),
    ("benchmarks.exponax_burgers", ""): Run("--rounds 1", slow=True, needs="exponax"),
    ("benchmarks.exponax_semilinear", ""): Run("--rounds 1 --only kdv", slow=True, needs="exponax"),
    ("benchmarks.flow_posterior", ""): Run(
        "--out TMP/flow --samples 40 --epochs 1 --width 4 --modes 2 --tests 2 --members 2",
        slow=True,
    ),
    ("benchmarks.growth", ""): Run("--table"),
    ("benchmarks.guarantee", "bounds"): Run("bounds --samples 2", slow=True),
    ("benchmarks.guarantee", "times"): Run("times --samples 2", slow=True),
    ("benchmarks.inclusion", ""): Run("--quick", slow=True, needs="dolfinx"),
    ("benchmarks.inverse_flows", "burgers"): Run("burgers --levels 0.01 --samples 2"),
    ("benchmarks.inverse_flows", "viscosity"): Run("viscosity --levels 0.1 --samples 2"),
    ("benchmarks.inverse_flows", "vorticity"): Run("vorticity --levels 0.1 --samples 2", slow=True),
    ("benchmarks.label_errors", ""): Run("", slow=True, needs="dolfinx"),
    ("benchmarks.noise_laws", ""): Run("--samples 2 --kinds drift", slow=True),
    ("benchmarks.reading", ""): Run("--rounds 1", slow=True),
    ("benchmarks.recipes", ""): Run("burgers-quick --samples 1"),
    ("benchmarks.residuals", ""): Run("--table"),
    ("benchmarks.scale", ""): Run("--predict benchmarks/results/scale.json"),
    ("benchmarks.start", ""): Run("--repeats 1", slow=True, verdict="slower to start"),
    ("benchmarks.structure", ""): Run("", slow=True),
    ("benchmarks.tail", "burgers"): Run("burgers --table"),
    ("benchmarks.tail", "darcy"): Run("darcy --table"),
    ("benchmarks.training", ""): Run("", slow=True),
    ("benchmarks.transforms", ""): Run("--rounds 1 --only 64", slow=True),
    ("benchmarks.vorticity", ""): Run("--rounds 1 --points 64", slow=True, needs="exponax"),
    ("benchmarks.waiting", ""): Run("--spins 0 --rounds 1", slow=True),
    ("tests.validation.airfoil", "designs"): Run("designs 1", slow=True),
    ("tests.validation.airfoil", "errors"): Run("errors 0 1 176 TMP/kept.npz", slow=True),
    ("tests.validation.airfoil", "limits"): Run("limits 110", slow=True),
    ("tests.validation.airfoil", "spacing"): Run("spacing 110", slow=True),
    ("tests.validation.airfoil", "streams"): Run("streams", slow=True),
    ("tests.validation.differences", ""): Run("", slow=True),
    ("tests.validation.dam_break", "published"): Run("published --cells 16"),
    ("tests.validation.dam_break", "stated"): Run("stated --samples 1 --rings 500"),
    ("tests.validation.darcy", ""): Run("darcy-contrast --samples 1"),
    ("tests.validation.elasticity", ""): Run("elasticity-quick --samples 1 --times 2", slow=True),
    ("tests.validation.wave", ""): Run("wave-quick --samples 1"),
    ("tests.validation.parameters", ""): Run("burgers-nu --samples 1"),
    ("tests.validation.pipe", ""): Run("--samples 1 --resolution 33", slow=True),
    ("tests.validation.poisson", ""): Run("poisson-quick --samples 2"),
    ("tests.validation.kolmogorov", ""): Run("kolmogorov-quick --samples 1 --steps 200"),
    ("tests.validation.plasticity", "errors"): Run("errors --resolution 21 --samples 1", slow=True),
    ("tests.validation.plasticity", "failures"): Run(
        "failures --resolution 21 --samples 1", slow=True
    ),
    ("tests.validation.plasticity", "statistics"): Run(
        "statistics STORE --samples 3", slow=True, store="plasticity-quick"
    ),
    ("tests.validation.published_reaction", ""): Run("--settings 1", slow=True),
    ("tests.validation.semilinear", ""): Run("fisher-kpp --samples 1"),
    ("tests.validation.vorticity", ""): Run("1e-3 --points 16 24"),
    ("tests.validation.waves", ""): Run("pdebench-advection-quick --samples 2"),
}  # fmt: skip

# commands that work on stores, runs or faults of their own, and the test that makes these
ELSEWHERE = {
    ("benchmarks", ""): "tests/benchmarks/test_bench.py",
    ("benchmarks.attention", "latent"): "tests/benchmarks/attention/test_report.py",
    ("benchmarks.conditional", ""): "tests/benchmarks/test_conditional.py",
    ("benchmarks.flow", ""): "tests/benchmarks/test_flow.py",
    ("benchmarks.flows", ""): "tests/benchmarks/test_flows.py",
    ("benchmarks.kernels", ""): "tests/benchmarks/test_kernels.py",
    ("benchmarks.posterior", ""): "tests/benchmarks/posterior/test_calibrated.py",
    ("benchmarks.products", ""): "tests/benchmarks/test_products.py",
    ("benchmarks.workers", ""): "tests/benchmarks/test_workers.py",
    ("tests.new", ""): "tests/test_new.py",
    ("tests.validation.earlier", ""): "tests/validation/test_earlier.py",
    ("tests.validation.statistics", ""): "tests/validation/test_statistics.py",
}

# commands that are minutes long at any size: their words are parsed, and the reason is here
LONG = {
    ("benchmarks.peers", ""): "needs the released codes of other projects",
    ("benchmarks.planted", ""): "runs the tests once for each fault",
    ("tests.mutants", ""): "runs the tests of a module once for each fault",
    ("tests.plain", ""): "is `make plain`",
    ("tests.soak", ""): "is `make soak`",
}


def pages(root):
    found = [page for page in (root / "docs").rglob("*.md") if "generated" not in page.parts]
    return [*found, *(root / "datasets").glob("*.md"), root / "README.md", root / "CONTRIBUTING.md"]


def named(text):
    """Module and words of the commands in a page."""
    fenced = [block for _, block in FENCED.findall(text)]
    inline = INLINE.findall(FENCED.sub("", text))
    joined = [" ".join(line.split()) for line in inline]
    for line in [*"\n".join(fenced).replace("\\\n", " ").splitlines(), *joined]:
        for module, words in NAMED.findall(re.sub(r" +", " ", line)):
            yield module, [word for word in shlex.split(words) if word != "..."]


def commands(root):
    return sorted({
        (module, tuple(words)) for page in pages(root) for module, words in named(page.read_text())
    })  # fmt: skip


def key(module, words):
    """The key of a command in the tables above."""
    first = words[0] if words else ""
    tables = SMALLEST | ELSEWHERE | LONG
    return (module, first) if (module, first) in tables else (module, "")


class Parsed(Exception):
    pass


def program(module):
    """The name of the module that runs, and its source."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"there is no module {module}"
    name = f"{module}.__main__" if spec.submodule_search_locations else module
    return name, inspect.getsource(importlib.import_module(name))


def test_every_command_has_a_test(root):
    tables = SMALLEST | ELSEWHERE | LONG
    lacking = {key(*one) for one in commands(root)} - tables.keys()
    assert lacking == set(), "add their smallest forms to SMALLEST"
    for (module, _), file in ELSEWHERE.items():
        name = module.rpartition(".")[2]
        assert name in (root / file).read_text(), f"{file} does not name {module}"


def test_commands_are_found_in_blocks_and_in_lines():
    text = "`python -m\nbenchmarks.a b --c 1`\n```sh\npython -m tests.d \\\n  --e 2  # f\n```\n"
    assert list(named(text)) == [("tests.d", ["--e", "2"]), ("benchmarks.a", ["b", "--c", "1"])]


def test_programs_take_the_words_of_the_pages(root, monkeypatch):
    depth = 0  # parsers of subcommands are called by their parents

    def stopping(parse):
        def parsed(*args, **kwargs):
            nonlocal depth
            depth += 1
            try:
                found = parse(*args, **kwargs)
            finally:
                depth -= 1
            if depth == 0:
                raise Parsed
            return found

        return parsed

    for method in ("parse_args", "parse_known_args"):
        parse = getattr(argparse.ArgumentParser, method)
        monkeypatch.setattr(argparse.ArgumentParser, method, stopping(parse))
    found = 0
    for module, words in commands(root):
        name, source = program(module)
        if "argparse" in source:
            monkeypatch.setattr(sys, "argv", [module, *words])
            try:
                importlib.import_module(name).main()
            except Parsed:
                found += 1
            except SystemExit as end:
                pytest.fail(f"python -m {module} {shlex.join(words)}: {end}")
    assert found > 40


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, id=" ".join(one).strip(), marks=[pytest.mark.slow] * run.slow)
     for one, run in SMALLEST.items()],
)  # fmt: skip
def test_a_command_runs_at_its_smallest_size(command, monkeypatch, tmp_path, capsys, request):
    module, run = command[0], SMALLEST[command]
    if run.needs == "dolfinx":
        request.getfixturevalue("dolfinx")
    elif run.needs and importlib.util.find_spec(run.needs) is None:
        pytest.skip(f"{run.needs} is not installed")  # an extra that `make test` does not install
    store = str(tmp_path / "store.zarr")
    if run.store:
        quietly("generate", run.store, *SMALL[run.store].options(), "--out", store)
    name, source = program(module)  # imports it, with the folder that it reads
    monkeypatch.setattr(history, "RESULTS", tmp_path)
    words = run.words.replace("TMP", str(tmp_path)).replace("STORE", store)
    monkeypatch.setattr(sys, "argv", [module, *words.split()])
    try:
        if re.search(r"^def main\(", source, re.M):
            assert not importlib.import_module(name).main()
        else:
            runpy.run_path(sys.modules[name].__file__, run_name="__main__")
    except SystemExit as end:
        if not run.verdict or not str(end.code).startswith(run.verdict):
            raise
    assert capsys.readouterr().out.strip()
