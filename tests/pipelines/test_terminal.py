"""Text of stores, files and errors reaches the terminal without control characters."""

import io
import re
import shutil
from pathlib import Path

import pytest

from pdegen.equations.base import SampleError
from pdegen.store.reading import Store
from pipelines.cli import common, stores
from pipelines.cli.common import shown
from tests.pipelines.command import SMALL
from tests.stores import with_attributes

CLEAR = "\x1b[2J\x1b]0;owned\x07"  # clears the screen, and names the window
HOSTILE = f"{CLEAR}\rverified\n\u202edeifirev\x9b31m[red]"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\rverified\n\u202edeifirev\x9b31m[red]"


@pytest.fixture
def hostile(burgers, tmp_path):
    """A store whose every text is hostile."""
    store = Store(str(shutil.copytree(burgers, tmp_path / "store.zarr")))
    recipe = {**store.raw_attributes["recipe"], "name": HOSTILE, "summary": HOSTILE}
    with_attributes(store, title=HOSTILE, equation=HOSTILE, recipe=recipe,
                    provenance={"pdegen": HOSTILE})  # fmt: skip
    return store


def plain(outcome):
    """All that was printed, without a control character."""
    text = "\n".join([*outcome.out, *outcome.err])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    return text


def test_control_characters_are_shown_and_letters_stay():
    assert shown(HOSTILE) == SHOWN
    assert shown("ν = 0.1/2π, ü, 10\u00a0000") == "ν = 0.1/2π, ü, 10\u00a0000"
    assert shown("\udcff.zarr") == r"\udcff.zarr"


def test_info_shows_what_a_store_says(pdegen, hostile):
    outcome = pdegen("info", hostile.url)
    assert outcome.status == 0
    assert outcome.out[0] == f"{hostile.url}: {SHOWN}"
    assert f"equation    {SHOWN}" in outcome.out
    plain(outcome)


def test_every_command_shows_what_a_store_says(pdegen, hostile):
    for words in (
        ["verify"], ["plot", "--out", "x.csv"], ["generate", "burgers-quick", "--resume", "--out"],
        ["train", "--model", "fno", "--out", "run", "--set", "training.epochs=0", "--data"],
    ):  # fmt: skip
        outcome = pdegen(*words, hostile.url)
        assert outcome.status != 0
        plain(outcome)


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_errors_are_shown(pdegen, monkeypatch, debug):
    def fail(*arguments, **options):
        raise SampleError(3, HOSTILE)

    monkeypatch.setattr("pdegen.generation.generate.generate", fail)
    outcome = pdegen("generate", "burgers-quick", *SMALL, "--out", "store.zarr", *debug)
    assert outcome.status == 1
    assert r"\x1b[2J" in plain(outcome)


@pytest.mark.parametrize("words", [["info", CLEAR], ["generate", CLEAR], [CLEAR], ["info", "[b]"]])
def test_words_of_the_command_are_shown(refused, words):
    assert shown(words[-1]) in refused(*words).replace("\\\\", "\\")


def test_what_the_terminal_cannot_write_is_shown(pdegen, monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", ascii_only)
    assert pdegen("recipes").status == 0
    ascii_only.seek(0)
    assert r"\u03bd" in ascii_only.read()


def test_what_follows_progress_on_a_terminal_has_a_line_of_its_own(monkeypatch):
    for follows in (common.note, common.say):
        screen = io.StringIO()
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setattr("sys.stdout", screen)
        common.redraw("verifying: 1/2")
        common.redraw("verifying: 2/3")
        follows("inputs a -> u")
        common.redraw("training: 1/1", last=True)
        follows("best.safetensors")
        assert screen.getvalue().replace("\r\x1b[K", "|") == (
            "|verifying: 1/2|verifying: 2/3\ninputs a -> u\n|training: 1/1\nbest.safetensors\n"
        )


def test_commands_print_by_the_terminal_alone():
    folder = Path(stores.__file__).parent
    for path in folder.glob("*.py"):
        if path.name != "terminal.py":
            found = re.findall(r"\bprint\(|std(?:out|err)\.write|typer\.s?echo", path.read_text())
            assert found == [], path
