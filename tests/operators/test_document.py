"""docs/operators/index.md says of every operator what its class says."""

from pathlib import Path

import pytest

from pipelines.config.declared import MODELS

PAGE = Path(__file__).parents[2] / "docs" / "operators" / "index.md"
LINES = PAGE.read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", MODELS)
def test_every_operator_stands_in_both_tables(name):
    rows = [line.split(" | ") for line in LINES if line.startswith(f"| `{name}` |")]
    (what, domains), operator = rows, MODELS[name].operator
    assert len(what) == 4
    _, dims, _, curvilinear, cloud, by_sample, padding, elsewhere = domains
    assert dims == ", ".join(map(str, operator.dims))
    said = [cell.strip(" |") != "no" for cell in (curvilinear, cloud, by_sample, padding)]
    assert said == [
        "curvilinear" in operator.domains,
        "cloud" in operator.domains,
        operator.points_by_sample,
        operator.masks,
    ]
    assert (elsewhere.strip(" |") != "no") >= operator.other_points
