"""Published means beside those of a study: the table, and the experiments that it is of."""

import dataclasses

import pytest

from pipelines.config.experiment import load_experiment
from pipelines.config.shipped import names
from pipelines.reports.noise_table import Results
from pipelines.reports.published import PUBLISHED, published_section
from pipelines.studies.inversions import CONSTANT, Cell
from pipelines.studies.runner import Row
from pipelines.studies.scores import MEASURES
from tests.pipelines.noise.conftest import a_study

NAME = "sparse-darcy-diffusionpde"
# FunDPS (NeurIPS 2025), Table 1: share of wrong cells, Darcy inverse, typed a second time
TABLE = {
    "FunDPS, 500 steps": "0.0518", "FunDPS, 200 steps": "0.0678",
    "DiffusionPDE, 2000 steps": "0.0787", "DeepONet": "0.411", "PINO": "0.492", "FNO": "0.493",
    "PINN": "0.597",
}  # fmt: skip


@pytest.fixture
def results(experiment, store, tmp_path):
    study = a_study(experiment, store, tmp_path, train=(), test=(0.0, 0.1))
    study = dataclasses.replace(study, experiment=load_experiment(NAME))
    better = Row(errors=[0.2, 0.1], scores={"misclassified": [0.01, 0.03]})
    worse = Row(errors=[0.2, 0.2], scores={"misclassified": [0.5, 0.5]})
    return Results(study, {
        Cell(CONSTANT): [[worse], [worse]],
        Cell("level set"): [[better], [better]],
    })  # fmt: skip


def test_published_rows_stand_below_the_ranked_ones(results):
    (section,) = published_section(results)
    (table,) = section.tables  # nothing is published at level 0.1
    assert [row[0] for row in table.rows[:2]] == ["level set", "constant"]
    assert table.rows[0][1] == "0.0200"
    assert table.rows[0][3:] == ("0.0100 to 0.0300", "2")
    assert {row[0]: row[1] for row in table.rows[-table.quiet :]} == TABLE
    assert "FunDPS, NeurIPS 2025" in section.text[0]


def test_nothing_is_published_of_other_experiments_and_levels(results):
    named = results.study.experiment.model_copy(update={"name": "burgers-quick"})
    other = dataclasses.replace(results, study=dataclasses.replace(results.study, experiment=named))
    assert published_section(other) == []
    rougher = results.study.experiment.with_overrides({"data.overrides.problem.field.tau": 30.0})
    other = dataclasses.replace(
        results, study=dataclasses.replace(results.study, experiment=rougher)
    )
    assert published_section(other) == []  # another distribution under the same name
    noisy = dataclasses.replace(results.study, test_levels=(0.1,))
    assert published_section(dataclasses.replace(results, study=noisy)) == []


def test_figures_are_of_shipped_experiments_and_known_scores():
    assert PUBLISHED.keys() <= set(names("experiment"))
    assert {p.score for each in PUBLISHED.values() for p in each} <= MEASURES.keys()
