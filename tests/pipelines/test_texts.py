"""What commands print and write for people and programs, word by word.

Texts stand in texts.txt. Real numbers, digests, times and paths are replaced by signs; counts,
names and words are not. A text that is changed on purpose is written anew by

    UPDATE_TEXTS=1 python -m pytest tests/pipelines/test_texts.py
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.runs.model_folder import export_model

FILE = Path(__file__).parent / "texts.txt"
SIGNS = (  # in this order
    (r"\x1b\[[0-9;]*m", ""),
    (r"(?:/[\w.+-]+){2,}", "PATH"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.+]+Z?", "TIME"),
    (r"[-+]?\b\d+(?:\.\d+)?e[-+]?\d+\b|[-+]?\b\d+\.\d+\b", "#"),
    (r"\b[0-9a-f]{12,64}\b", "DIGEST"),
    (r"(?:#|\d+) (?:ms|s|min|[kKMG]i?B|B|bytes)\b", "# UNIT"),
    (r"(made (?:by|on) +\|?).*", r"\1 VERSIONS"),
    (r"```toml\n.*?```", "EXPERIMENT"),
)


def signed(text: str) -> str:
    """The text with signs in the place of what another machine may have otherwise."""
    for pattern, sign in SIGNS:
        text = re.sub(pattern, sign, text, flags=re.DOTALL if "toml" in pattern else 0)
    return "\n".join(line.rstrip() for line in text.splitlines())


def keys(content: object, at: str = "") -> Iterator[str]:
    """Every key of JSON with the kind of its value; elements of a list are taken together."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from keys(value, f"{at}.{key}" if at else key)
    elif isinstance(content, list):
        yield from dict.fromkeys(line for one in content for line in keys(one, f"{at}[]"))
    else:
        kind = "number" if isinstance(content, int | float) else type(content).__name__
        yield f"{at}: {'flag' if isinstance(content, bool) else kind}"


def described(path: Path) -> str:
    """The keys of a JSON file, without those of the machine, and of experiments (keys.txt)."""
    contents = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if (
        path.suffix == ".jsonl") else json.loads(path.read_text("utf-8"))  # fmt: skip
    lines = sorted({re.sub(r"measures[.]\w+", "measures.*", line) for line in keys(contents)})
    return "\n".join(line for line in lines if not re.search("provenance|experiment[.]", line))


def of_files(folder: Path) -> dict[str, str]:
    """The keys of each JSON file of a folder, by the file's name."""
    files = sorted([*folder.rglob("*.json"), *folder.rglob("*.jsonl")])
    return {
        file.relative_to(folder).as_posix(): described(file)
        for file in files
        if not file.name.startswith(".")
    }


@pytest.fixture(scope="module")
def stated():
    """The texts of the file, by name; new ones are collected in it."""
    parts = re.split(r"^=== (.*)\n", FILE.read_text("utf-8"), flags=re.M)[1:]
    texts = dict(zip(parts[::2], (text.rstrip("\n") for text in parts[1::2]), strict=True))
    yield texts
    if "UPDATE_TEXTS" in os.environ:
        FILE.write_text("\n".join(f"=== {k}\n{v}\n" for k, v in sorted(texts.items())), "utf-8")


def agree(stated: dict[str, str], name: str, text: str) -> None:
    if "UPDATE_TEXTS" in os.environ:
        stated[name] = signed(text)
    assert signed(text) == stated.get(name, "")
    assert not re.search(
        r"(?<![.\w])1 (?:epochs|samples|points|dimensions|channels|shards)\b", text
    )


COMMANDS = {
    "info": ("info", "STORE"),
    "verify": ("verify", "STORE"),
    "evaluate": ("evaluate", "BEST", "--data", "STORE"),
    "predict": ("predict", "BEST", "--data", "STORE", "--out", "p.zarr"),
    "compare": ("compare", "RUN", "SEEDED", "--out", "compared"),
    "export a model": ("export", "RUN", "--format", "model", "--out", "model"),
    "export a store": ("export", "STORE", "--format", "hdf5", "--out", "store.h5"),
    "noise": ("noise", "STORE", "--variable", "a", "--levels", "0.1", "--out", "n.zarr"),
    "train": (
        "train", "--model", "fno", "--data", "STORE", "--set", "epochs=2", "--set", "batch=4",
        "--set", "width=8", "--set", "model.modes=4", "--out", "trained",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_print_the_texts(name, pdegen, runs, store, stated):
    best = runs["run"] / "best.safetensors"
    places = {"STORE": store, "RUN": runs["run"], "SEEDED": runs["seeded"], "BEST": best}
    outcome = pdegen(*(places.get(word, word) for word in COMMANDS[name]))
    assert outcome.status == 0, outcome.err
    progress = re.compile(r": \d+/\d+, ")  # how often it is printed is left to chance
    printed = [*outcome.out, "--- on stderr"]
    printed += [line for line in outcome.err if not progress.search(line)]
    agree(stated, name, "\n".join(printed))


def test_commands_write_the_keys(pdegen, store, stated):
    outcome = pdegen("info", store, "--json")
    lines = sorted(set(keys(json.loads("\n".join(outcome.out)))))
    agree(stated, "keys of info", "\n".join(line for line in lines if "provenance" not in line))


@pytest.mark.parametrize("name", ["finished", "published", "inverse"])
def test_a_run_and_its_model_have_the_keys_and_the_card(name, request, tmp_path, stated):
    """Two epochs chosen by validation; trajectories, published; noise, a target of other points."""
    run, _ = request.getfixturevalue(name)
    for file, text in of_files(run).items() if name != "published" else ():
        agree(stated, f"{name}: {file}", text)
    folder = export_model(run, tmp_path / "model")
    agree(stated, f"{name}: card of its model", (folder / "README.md").read_text("utf-8"))
    if name == "inverse":
        agree(stated, f"{name}: model", described(folder / "config.json"))


def test_a_benchmark_has_the_keys(benchmarked, stated):
    for file, text in of_files(benchmarked.folder).items():
        if "/" not in file or file.endswith("seed-0.json"):
            agree(stated, f"benchmark: {re.sub(r'[0-9a-f]{8,}', 'DIGEST', file)}", text)
