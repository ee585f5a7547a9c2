"""What the reports of runs, comparisons, benchmarks and studies say, word by word.

The texts stand in report_texts/. A text that is changed on purpose is written anew by

    UPDATE_TEXTS=1 python -m pytest tests/pipelines/test_report_texts.py
"""

from pathlib import Path

import pytest

from tests.pipelines.report_text import check_text, report_text
from tests.pipelines.test_samples_study import made  # noqa: F401

TEXTS = Path(__file__).parent / "report_texts"


@pytest.mark.parametrize("kind", ["finished", "published", "darcy", "inverse"])
def test_reports_of_runs_say_all_that_is_known_of_them(kind, request):
    run, _ = request.getfixturevalue(kind)
    check_text(TEXTS / f"{kind}.txt", report_text(run))


def test_a_comparison_says_what_differs(three):
    check_text(TEXTS / "three.txt", report_text(three))


def test_a_benchmark_says_what_each_operator_gave_and_cost(benchmarked):
    check_text(TEXTS / "benchmarked.txt", report_text(benchmarked.folder))


def test_a_samples_study_says_what_each_number_gave(made):  # noqa: F811
    check_text(TEXTS / "samples.txt", report_text(made / "study"))
