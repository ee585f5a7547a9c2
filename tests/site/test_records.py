"""Pages state the published records that `pipelines/config/records.toml` has, and no others."""

import re
from types import SimpleNamespace

import pytest

from pdegen.recipe import recipe_names
from pipelines.config.benchmark import load_benchmark
from pipelines.config.shipped import records
from pipelines.reports.benchmark_report import _record
from tests.site.test_blocks import pages

STATED = re.compile(r"(\d\.\d+e-\d)\s+\((La\s?MO|LRSA)([^)]*)\)")


def test_each_record_is_of_a_recipe():
    assert set(records()) <= set(recipe_names())
    assert records()["darcy-85"].sentence == "3.9e-3 (LaMO, ICML 2025)"
    assert records()["ns-1e-5"].sentence == "4.6e-2 (LaMO, ICML 2025)"


def test_pages_state_the_records(root):
    """A figure beside the name of a model that holds a record is one of the records."""
    known = {(record.model, record.error) for record in records().values()}
    known |= {("LRSA", 4.3e-3), ("LRSA", 4.2e-3)}  # the second of Darcy and of the airfoil
    found = {}
    for page in [*pages(root), *(root / "datasets").glob("*.md")]:
        for error, model, _ in STATED.findall(page.read_text("utf-8")):
            assert (model, float(error)) in known, page
            found.setdefault(page.name, set()).add((model, float(error)))
    assert ("LaMO", 3.9e-3) in found["darcy.md"]
    assert ("LaMO", 4.6e-2) in found["vorticity.md"]


def test_reports_of_the_standard_benchmark_have_the_records():
    run = SimpleNamespace(benchmark=load_benchmark("standard"))
    rows = {name: dict(_record(run, name)) for name in run.benchmark.datasets}
    assert rows["vorticity"] == {"Smallest published error": "4.6e-2 (LaMO, ICML 2025)"}
    assert rows["pipe"] == {"Smallest published error": "2.3e-3 (LRSA, ICML 2026)"}
    assert rows["burgers"] == rows["inverse darcy"] == {}
    quick = SimpleNamespace(benchmark=run.benchmark.quickly())  # other sizes
    assert not any(dict(_record(quick, name)) for name in quick.benchmark.datasets)


@pytest.mark.parametrize("name", ["pipe", "elasticity", "airfoil"])
def test_certificates_compare_with_the_records(root, name):
    text = (root / "docs/results/label-certificates.md").read_text("utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
    assert float(STATED.search(row)[1]) == records()[name].error


def test_our_best_darcy_error_is_not_called_the_smallest(root):
    text = (root / "docs/results/darcy.md").read_text("utf-8")
    assert records()["darcy-85"].error < 4.28e-3
    assert "is not below the [published record]" in " ".join(text.split())
