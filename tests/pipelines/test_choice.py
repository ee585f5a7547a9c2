"""Settings that a search or a budget tries, and the time of those that it does not choose."""

import shutil
from types import SimpleNamespace

import pytest

from operators.training.fit import TrainingError
from pdegen.files import write_json
from pipelines.config.benchmark import Case
from pipelines.studies import benchmark as choice
from pipelines.studies.benchmark import BenchmarkRun, cases_on, check_cases
from pipelines.studies.runner import Execution
from tests.pipelines.conftest import CPU
from tests.pipelines.test_benchmark import CONTENT, declared
from tests.pipelines.test_budget import of_scores

FNO = Case("burgers", "FNO")
RATES = [1e-3, 2e-3, 5e-3]


def a_run(burgers, folder, **changes):
    content = {"operators": {"FNO": CONTENT["operators"]["FNO"]}, **changes}
    return BenchmarkRun(declared(**content), {"burgers": str(burgers)}, folder / "b")


def begun(run, seed, chosen):
    """A run folder that holds the beginning of a training."""
    training = run.training(FNO, seed, chosen)
    training.folder.mkdir(parents=True)
    write_json(training.folder / "run.json", {
        "experiment": training.experiment.model_dump(mode="json")
    })  # fmt: skip
    return training.folder


def test_a_budget_has_tried_what_was_begun(burgers, tmp_path):
    run = a_run(burgers, tmp_path, budget={})
    assert choice.tried(run, FNO) == choice.begun_budget(run, FNO, 0) == []
    for epochs in (2, 4, 16):
        begun(run, 0, {choice.EPOCHS: epochs})
    assert choice.tried(run, FNO) == [{choice.EPOCHS: 2}, {choice.EPOCHS: 4}]
    folder = run.training(FNO, 0, {choice.EPOCHS: 8}).folder
    shutil.copytree(run.training(FNO, 1, {choice.EPOCHS: 4}).folder.parent / "seed-0-epochs-4",
                    folder)  # fmt: skip
    # a folder of another training counts as one that may not be replaced
    assert choice.tried(run, FNO) == [{choice.EPOCHS: 2}, {choice.EPOCHS: 4}]
    assert choice.begun_budget(run, FNO, 0) == [{choice.EPOCHS: 2**k} for k in (1, 2, 3, 4)]
    begun(run, 1, {choice.EPOCHS: 2})
    assert choice.begun_budget(run, FNO, 1) == [{choice.EPOCHS: 2}]


def test_a_search_has_tried_all_its_values(burgers, tmp_path):
    run = a_run(burgers, tmp_path, search={"training.lr": RATES})
    assert choice.tried(run, FNO) == [{"training.lr": rate} for rate in RATES]


def test_tuning_takes_the_time_of_all_other_trainings(burgers, tmp_path, monkeypatch):
    run = a_run(burgers, tmp_path, search={"training.lr": RATES})
    seconds = dict(zip(RATES[:2], (3.0, 70.0), strict=True))  # the third was not begun
    folders = {begun(run, 0, {"training.lr": rate}): s for rate, s in seconds.items()}
    monkeypatch.setattr(
        choice, "recorded_history",
        lambda folder: [SimpleNamespace(seconds=folders[folder]), SimpleNamespace(seconds=0.5)],
    )  # fmt: skip
    spent = [choice.tuning_seconds(run, FNO, {"training.lr": rate}) for rate in RATES]
    assert spent == [70.5, 3.5, 74.0]


def searched(run, monkeypatch, histories):
    def train(self, how):
        found = histories[self.experiment.training.lr]
        if isinstance(found, str):
            raise TrainingError(found)
        return of_scores(*found)

    monkeypatch.setattr("pipelines.studies.runner.StudyTraining.run", train)
    return choice.settings_of(run, FNO, Execution(CPU))


def test_a_search_ignores_settings_that_diverge(burgers, tmp_path, monkeypatch):
    run = a_run(burgers, tmp_path, search={"training.lr": RATES})
    values = [(0.3, 0.4), "diverged", (0.5, 0.2)]
    found = searched(run, monkeypatch, dict(zip(RATES, values, strict=True)))
    assert found == ({"training.lr": 5e-3}, "")
    equal = [(0.3, 0.4), (0.3, 0.5), "diverged"]
    found = searched(run, monkeypatch, dict(zip(RATES, equal, strict=True)))
    assert found == ({"training.lr": 1e-3}, "")  # the first of equal ones
    with pytest.raises(TrainingError, match="last"):
        searched(run, monkeypatch, dict(zip(RATES, ("first", "diverged", "last"), strict=True)))


def test_cases_are_those_whose_operator_has_the_dimension():
    two = {"burgers": CONTENT["datasets"]["burgers"], "again": CONTENT["datasets"]["burgers"]}
    gt = {"model": {"name": "galerkin-transformer-2d"}}
    benchmark = declared(datasets=two, operators={**CONTENT["operators"], "GT": gt})
    found = [(case.dataset, case.operator) for case in
             cases_on(benchmark, {"burgers": 2, "again": 1})]  # fmt: skip
    assert found == [
        ("burgers", "FNO"), ("burgers", "DeepONet (16)"), ("burgers", "GT"),
        ("again", "FNO"), ("again", "DeepONet (16)"),
    ]  # fmt: skip


def test_an_operator_without_a_dataset_is_named():
    gt = {"GT": {"model": {"name": "galerkin-transformer-2d"}}}
    benchmark = declared(operators={**CONTENT["operators"], **gt})
    check_cases(benchmark, {"burgers": 2}, ["GT", "FNO"])
    check_cases(benchmark, {"burgers": 1}, ["FNO"])
    message = (
        "GT: galerkin-transformer-2d supports domains of dimension 2; the datasets have burgers: 1"
    )
    with pytest.raises(ValueError, match=message):
        check_cases(benchmark, {"burgers": 1}, ["FNO", "GT"])
    with pytest.raises(
        ValueError, match="benchmark small: no operator supports the dimension of burgers"
    ):
        check_cases(declared(operators=gt), {"burgers": 1}, [])
