"""Help, examples, tab completion, lists and defaults of the commands."""

import json
import shlex

import pytest
import typer

from pdegen.recipe import load_recipe, recipe_names
from pdegen.sampling.noise import KINDS, NoiseKind
from pdegen.store.reading import Store
from pipelines.cli import common
from pipelines.cli.common import EXAMPLES, FEW, app, parsed
from pipelines.cli.studies import chosen
from pipelines.config.benchmark import load_benchmark
from pipelines.config.experiment import load_experiment
from pipelines.config.keys import overridable
from pipelines.config.shipped import names
from tests.pipelines.command import SMALL
from tests.stores import faults

ROOT = typer.main.get_command(app)
EVERY = [(words, example) for words, examples in EXAMPLES.items() for example in examples]


def commands(group=ROOT, before=""):
    """All commands by their words."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, f"{before}{name} ")
        else:
            yield f"{before}{name}", one


def context(line):
    """An example, parsed: the words of the command and its arguments."""
    _, *left = shlex.split(line)
    one, words = ROOT, []
    while hasattr(one, "commands"):
        words.append(left.pop(0))
        one = one.commands[words[-1]]
    return " ".join(words), one.make_context(words[-1], left)


# help


def test_the_list_shows_whole_sentences(pdegen):
    for words in ([], ["study"]):
        listed = " ".join(" ".join(pdegen(*words, "--help").out).split("Commands:")[1].split())
        group = ROOT.commands["study"] if words else ROOT
        for name, one in group.commands.items():
            said = one.short_help or one.help
            assert said.endswith(".")
            assert f"{name} {said}" in listed
        assert "..." not in listed


def test_every_command_has_examples_at_the_end_of_its_help(pdegen):
    found = dict(commands())
    assert found.keys() == EXAMPLES.keys()
    for words in found:
        out = pdegen(*words.split(), "--help").out
        at = out.index("  Examples:")
        assert out[at + 1 :] == [f"    {example}" for example in EXAMPLES[words]], words


def test_examples_are_commands_whose_names_and_keys_exist():
    checked = 0
    for words, example in EVERY:
        assert words == context(example)[0]
        given = context(example)[1]
        own = parsed(given.params.get("set_"))
        if words == "generate":
            load_recipe(given.params["recipe"]).with_overrides(own)
        elif words in ("train", "run", "study noise") and given.params["experiment"]:
            load_experiment(given.params["experiment"]).with_overrides(own)
        elif words in ("benchmark", "study resolution"):
            benchmark = load_benchmark(given.params["name"], sound=False)
            chosen(benchmark, given.params["quick"], given.params["only"], given.params["on"], None)
        elif words == "keys" and not given.params["name"].endswith(".toml"):
            overridable(given.params["name"])
        elif words == "noise":
            NoiseKind.parse({"kind": given.params["kind"], **own}, example)
        else:
            continue
        checked += 1
    assert checked > 10


# tab completion


@pytest.fixture
def completed(pdegen, monkeypatch):
    """Completions that bash offers at the end of a command line."""

    def offered(line):
        words = line.split(" ")
        monkeypatch.setenv("_PDEGEN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        outcome = pdegen()
        assert (outcome.status, outcome.err) == (0, [])
        return [line for line in outcome.out if line]

    return offered


def test_names_are_completed(completed):
    assert completed("pdegen ver") == ["verify"]
    assert completed("pdegen generate burgers-q") == ["burgers-quick"]
    assert completed("pdegen run darcy-inverse-q") == ["darcy-inverse-quick"]
    assert completed("pdegen study noise darcy-inverse-q") == ["darcy-inverse-quick"]
    assert completed("pdegen benchmark sta") == ["standard", "standard-converged"]
    assert completed("pdegen keys qu") == ["quick"]
    assert completed("pdegen keys burgers-r") == ["burgers-r10", "burgers-r10-as-printed"]
    assert completed("pdegen train --model galerkin-transformer-") == ["galerkin-transformer-2d"]
    assert completed("pdegen train x --stream swift") == ["swift-hohenberg"]


def test_operators_and_datasets_are_those_of_the_benchmark(completed):
    benchmark = load_benchmark("quick")
    assert completed("pdegen benchmark quick --only ") == list(benchmark.operators)
    assert completed("pdegen benchmark quick --on d") == ["darcy"]
    assert completed("pdegen study resolution --only ") == list(
        load_benchmark("resolution").operators
    )
    assert completed("pdegen benchmark nosuch --only ") == []
    assert completed("pdegen benchmark --only ") == []


# lists


def test_lists_are_for_programs_too(pdegen):
    expected = {
        "recipes": recipe_names(), "experiments": names("experiment"),
        "benchmarks": names("benchmark"), "operators": common.operators(), "noise-kinds": KINDS,
    }  # fmt: skip
    for words, known in expected.items():
        rows = json.loads("\n".join(pdegen(words, "--json").out))
        assert {row.get("name", row.get("kind")) for row in rows} >= {*known}
        assert all(row["summary"] for row in rows)
        assert {*known} <= {line.split()[0] for line in pdegen(words).out if line}
    rows = json.loads("\n".join(pdegen("recipes", "--json").out))
    r10 = next(row for row in rows if row["name"] == "burgers-r10")
    assert (r10["equation"], r10["samples"], r10["grid"]) == ("burgers", 2048, [8192])
    (line,) = [line for line in pdegen("recipes").out if line.split()[:1] == ["burgers-r10"]]
    assert f" {r10['bytes'] / 1e6:.1f} MB " in line


# what stores hold, where results go, and small splits


def test_info_is_for_programs_too(pdegen, burgers):
    found = json.loads("\n".join(pdegen("info", burgers, "--json").out))
    held = Store(str(burgers)).metadata
    assert (found["sealed"], found["fingerprint"]) == (True, held.fingerprint)
    assert found["variables"]["u"]["shape"] == [12, 32]
    assert found["variables"]["u"]["role"] == "target"
    assert found["splits"] == {"train": [0, 8], "validation": [8, 10], "test": [10, 12]}
    assert found["recipe"]["samples"] == 12


def test_results_have_a_place_without_out(pdegen, burgers, tmp_path):
    noisy = pdegen("noise", burgers, "--variable", "u", "--level", "0.1")
    try:
        assert noisy.out == [str(burgers.with_name("burgers-noisy.zarr"))], noisy.err
        assert faults(noisy.out[0]) == []
    finally:
        for path in sorted(burgers.with_name("burgers-noisy.zarr").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    assert pdegen("export", burgers, "--format", "mat").out == ["burgers.mat"]
    assert pdegen("import", "burgers.mat").out == ["data/burgers.zarr"]
    assert faults("data/burgers.zarr") == []


def test_small_splits_are_warned_of(pdegen, burgers):
    outcome = pdegen("generate", "burgers-quick", *SMALL)
    warning = (
        "pdegen: warning: 2 validation and 2 test samples: mean errors depend on single samples; "
        f"use {FEW} or more to compare operators"
    )
    assert outcome.err[-1] == warning
    assert pdegen("info", burgers).err == [warning]
    assert pdegen("info", burgers, "--json").err == []
