"""Every command and program of the README runs: here on few samples, in `make plain` as written."""

import re
import shlex
import sys

import pytest

from pipelines import cli
from tests import readme


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
