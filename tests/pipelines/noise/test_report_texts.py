"""What the reports of noise studies say, word by word.

The texts stand in report_texts/. A text that is changed on purpose is written anew by

    UPDATE_TEXTS=1 python -m pytest tests/pipelines/noise/test_report_texts.py
"""

from pathlib import Path

import pytest

from pipelines.reports.noise_report import write_noise_report
from tests.pipelines.noise.conftest import CPU
from tests.pipelines.noise.test_operators import a_study as a_study_of_operators
from tests.pipelines.noise.test_study_of_a_flow import DATA
from tests.pipelines.report_text import check_text, report_text

TEXTS = Path(__file__).parent / "report_texts"


def test_a_study_with_all_methods_says_how_each_did(finished):
    check_text(TEXTS / "all-methods.txt", report_text(finished.folder))


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    """A store of Burgers."""
    from pdegen.generation.generate import generate
    from pdegen.recipe import load_recipe

    recipe = load_recipe("burgers-quick").with_overrides(DATA)
    return generate(recipe, str(tmp_path_factory.mktemp("flows") / "b.zarr"), workers=1).url


def test_a_study_of_operators_compares_them_at_each_level(flows, tmp_path):
    study = a_study_of_operators(flows, tmp_path / "s")
    study.run(CPU)
    write_noise_report(study, CPU)
    check_text(TEXTS / "operators.txt", report_text(study.folder))


def test_a_study_of_noisy_targets_says_what_was_trained_on_them(flows, tmp_path):
    study = a_study_of_operators(
        flows, tmp_path / "s", train=(0.0, 0.2), test=(0.0,), **{"noise.on": "targets"}
    )
    study.run(CPU)
    write_noise_report(study, CPU)
    check_text(TEXTS / "targets.txt", report_text(study.folder))
