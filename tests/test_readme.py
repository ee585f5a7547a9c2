"""Every command and program of the README runs: here on few samples, in `make plain` as written."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from install import pytorch
from pipelines import cli
from tests import readme
from tests.plain import __main__ as plain


@pytest.mark.usefixtures("unchecked")  # the checks of shapes take most of the time
def test_commands_run_in_their_order(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = readme.commands(root, small=True)
    assert len(commands) > 8
    for command in commands:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 0, f"{command}: {capsys.readouterr().err}"
    for program in readme.programs(root):
        exec(compile(program, "README.md", "exec"), {})
    for result in readme.RESULTS:
        assert (tmp_path / result).stat().st_size > 1000


def test_links_lead_to_files(root):
    text = (root / "README.md").read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links
    assert [link for link in links if not (root / link).exists()] == []


def test_two_commands_run_the_main_job_and_the_tests(root):
    first, by_pip, *_ = readme.blocks(root, "")
    named = [line.partition("#") for line in first.splitlines()]
    assert [(command.strip(), bool(meaning)) for command, _, meaning in named] == [
        ("make demo", True), ("make test", True),
    ]  # fmt: skip
    makefile = (root / "Makefile").read_text("utf-8")
    assert readme.demo(root).startswith("pdegen run ")
    assert re.search(r"^test: .*\n(\t.*\n)*?\t.* -m pytest ", makefile, re.M)
    assert "\nmake test\n" in (root / ".ci/run").read_text("utf-8")
    # what make plain runs, in an environment of its own
    commands = [line.partition("#")[0].split() for line in by_pip.splitlines()]
    assert commands[0] == ["python3", "-m", "venv", ".venv"]
    assert commands[1] == [".venv/bin/python", "install/pytorch.py"]
    assert commands[2][:2] == [".venv/bin/pip", "install"]
    installing = plain.installing(Path(".venv"), ".")
    assert set(commands[2]) - {"-c"} <= set(installing)
    assert "--editable" not in installing
    assert " ".join(commands[3]) == f".venv/bin/{readme.demo(root)}".removesuffix(" --overwrite")


def test_a_sentence_and_a_picture_come_before_the_first_paragraph(root):
    title, sentence, picture, *_ = (root / "README.md").read_text("utf-8").split("\n\n")
    assert title.startswith("# ")
    assert sentence.count(". ") == 0
    assert picture.startswith("![")


def test_sizes_are_those_that_the_installation_states(root):
    text = (root / "README.md").read_text("utf-8")
    for size in (pytorch.WITHOUT_CUDA, pytorch.WITH_CUDA):
        assert size.removesuffix(" installed") in text


def test_results_stand_on_the_pages_of_results(root):
    """Each error of the table, with its command."""
    text = (root / "README.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.partition("## Results")[2].splitlines()]
    rows = [row for row in rows if len(row) == 5][1:]
    assert len(rows) == 5
    pages = [file.read_text("utf-8") for file in (root / "docs/results").glob("*.md")]
    for row in rows:
        (command,) = re.findall(r"`(pdegen [^`]*)`", row[4])
        (page,) = [page for page in pages if f"\n{command}\n" in page and row[2] in page]
        for number in re.findall(r"\d\.\d+e-\d", row[3]):
            assert number in page
