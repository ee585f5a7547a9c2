"""Errors against a parameter of the samples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import conditional
from tests.pipelines.command import SMALL, quietly

NU = "viscosity={law = 'log-uniform', low = 0.01, high = 0.1}"


@pytest.mark.parametrize(("laws", "known"), [([], "none"), (["--set", NU], "viscosity")])
def test_a_parameter_that_the_store_lacks_is_refused_in_one_line(
    laws: list[str],
    known: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = str(tmp_path / "store.zarr")
    quietly("generate", "burgers-quick", *SMALL, *laws, "--out", url)
    words = [f"fno=absent@{url}", "--parameter", "amplitude", "--resolution", "32"]
    monkeypatch.setattr(sys, "argv", ["conditional", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        conditional.main()
    assert stopped.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(f"{url} has no parameter 'amplitude' with a law, known: {known}")
