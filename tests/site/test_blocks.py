"""Every block of code in the pages is run: cells by building the site, programs by the tests below.
Command lines that cannot run here, on clusters, must be ones that the commands take. Fragments of
a user's files must import what exists."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from pipelines.cli.common import app

UsageError: type[Exception] = typer.BadParameter.mro()[1]
BLOCK = re.compile(r"^(`{3,}|:{3,})(.*)\n((?:.*\n)*?)\1$", re.M)
RUN = {"docs/how-to/lightning.md", "docs/how-to/neuraloperator.md", "docs/how-to/s3.md"}
FRAGMENTS = {"docs/equations.md", "docs/how-to/training.md", "docs/operators/own.md"}


def pages(root):
    return [page for page in (root / "docs").rglob("*.md") if "generated" not in page.parts]


def blocks(page):
    """Language and text of each block with backticks."""
    for fence, opening, text in BLOCK.findall(page.read_text("utf-8")):
        if fence[0] == "`":
            yield opening.removeprefix("{code-block}").strip(), text


def commands(text):
    """Command lines of pdegen in a block, without prompts, and joined where they go on."""
    for line in text.replace("\\\n", " ").splitlines():
        if re.search(r"(^|\s)pdegen\s", line):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            yield words[words.index("pdegen") + 1 :]


def accept(words):
    """Parse a command line; nothing is run."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    if "--help" not in words:
        command.make_parser(command.context_class(command)).parse_args(list(words))


TENS = "ten|eleven|twelve|[a-z]+teen|(?:twenty|thirty|forty|fifty|sixty)(?:-[a-z]+)?"
LARGE = rf"(?:\d{{2,}}|{TENS})"  # ten or more
REGISTERED = r"(?:\w+ )?(?:operators|equations|recipes|solvers|experiments|benchmarks|presets)\b"
COUNT = re.compile(rf"\b{LARGE} {REGISTERED}", re.I)  # of what is there, which changes
SHARE = re.compile(rf"\b(?:\d+|{TENS}) of {LARGE} {REGISTERED}", re.I)


def test_each_page_stands_in_a_list_of_contents(root):
    docs = root / "docs"
    listed = {docs / "index.md"}
    for page in pages(root):
        for language, text in blocks(page):
            if language.startswith("{toctree}"):
                names = [line for line in text.splitlines() if line and not line.startswith(":")]
                paths = [str(docs) + n if n[0] == "/" else f"{page.parent}/{n}" for n in names]
                listed |= {Path(f"{path}.md") for path in paths}
    assert not set(pages(root)) - listed


def test_pages_do_not_count_what_is_registered(root):
    """Measured pages may say how many rows a table has, but not as a share of all."""
    others = [root / "README.md", root / "CONTRIBUTING.md", *(root / "datasets").glob("*.md")]
    for path in [*pages(root), *others, *(root / "pipelines").rglob("*.toml")]:
        wrong = [SHARE] if "results" in path.parts else [COUNT, SHARE]
        lines = " ".join(path.read_text("utf-8").split())
        assert [found[0] for form in wrong for found in form.finditer(lines)] == [], path


@pytest.mark.parametrize(
    "said", ["the 33 operators", "thirty-three neural operators", "11 of 12 solvers", "47 recipes"]
)
def test_a_count_would_be_noticed(said):
    assert COUNT.search(said)


def test_the_commands_of_the_pages_are_taken(root):
    found = 0
    for page in pages(root):
        for language, text in blocks(page):
            if language in ("", "console", "sh"):
                for words in commands(text):
                    found += 1
                    try:
                        accept(words)
                    except (KeyError, UsageError) as error:
                        pytest.fail(f"{page.name}: pdegen {shlex.join(words)}: {error}")
    assert found > 20


@pytest.mark.parametrize("wrong", ["generat burgers-quick", "generate burgers-quick --sample 3"])
def test_a_wrong_command_would_be_noticed(wrong):
    with pytest.raises((KeyError, UsageError)):
        accept(shlex.split(wrong))


def test_programs_are_cells_or_run_by_a_test(root):
    found = {
        page.relative_to(root).as_posix()
        for page in pages(root)
        for language, _ in blocks(page)
        if language == "python"
    }
    assert found == RUN | FRAGMENTS


@pytest.mark.parametrize("name", sorted(FRAGMENTS))
def test_fragments_import_what_exists(root, name):
    """Parts of files of a user, whose other parts are not on the page."""
    for language, text in blocks(root / name):
        for node in ast.walk(ast.parse(text)) if language == "python" else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), text


def test_tables_are_toml(root):
    for page in pages(root):
        for language, text in blocks(page):
            if language == "toml":
                tomllib.loads(text)


def test_tasks_have_at_most_five_commands(root):
    sys.path.insert(0, str(root / "docs"))
    try:
        from ten_tasks import tasks
    finally:
        sys.path.pop(0)
    found = list(tasks((root / "docs/ten-tasks.md").read_text("utf-8")))
    assert [title.split(".")[0] for title, _ in found] == [str(n) for n in range(1, 11)]
    assert all(1 <= len(commands) <= 5 for _, commands in found)
