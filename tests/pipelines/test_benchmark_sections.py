"""Sections of a benchmark's report say what its rows say, and in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from operators.training.fit import Epoch
from pipelines.config.benchmark import Case
from pipelines.reports import benchmark_report
from pipelines.reports.benchmark_report import _DatasetReport
from pipelines.runs.finished import MEAN
from pipelines.studies.runner import Row

CPU = torch.device("cpu")


def row(operator: str, *errors: float, dataset: str = "darcy", **words) -> Row:
    return Row(dataset=dataset, operator=operator, errors=[*errors], **words)


ROWS = [
    row("FNO", 0.4, 0.6, means={8: 0.3, 16: 0.5, 32: 0.7}, parameters=300, training_seconds=8.0),
    row("FNO", 0.6, 0.6, seed=1, means={8: 0.5, 16: 0.6}, refused={32: "too fine"},
        parameters=300, training_seconds=4.0),
    row("GT", 0.1, 0.3, means={16: 0.2}, refused={8: "too coarse", 32: "too coarse"},
        parameters=500, training_seconds=2.0, ended="time", chosen={"training.epochs": 4}),
    row("PiT", seed=2, protocol="published", failed="diverged"),
    row("GT", 0.9, dataset="pipe"),
]  # fmt: skip
LOSSES = {"FNO": [5.0, 0.2, 3.0], "GT": [3.0, 2.0, 1.0]}


class Run:
    """Results of a benchmark of two datasets, without its folder."""

    def __init__(self, measure: str = "l2", protocols: tuple[str, ...] = ()) -> None:
        names = ("FNO", "GT", "PiT")
        data = SimpleNamespace(finest_resolution=16, training_resolutions=[16])
        training = SimpleNamespace(protocol="validation")
        experiment = SimpleNamespace(resolutions=[32, 8, 16], data=data, training=training)
        entry = SimpleNamespace(published_grids={"darcy": {8: 0.05}}, published={"darcy": 0.04})
        plain = SimpleNamespace(published_grids={}, published={})
        dataset = SimpleNamespace(measure=measure, load=lambda: experiment)
        self.benchmark = SimpleNamespace(
            protocols=protocols, datasets={"darcy": dataset, "pipe": dataset},
            operators={"FNO": entry, "GT": plain, "PiT": plain},
        )  # fmt: skip
        self.cases = [Case("darcy", name) for name in names] + [Case("pipe", "GT"),
                                                                Case("pipe", "FNO")]  # fmt: skip

    def trivial(self, dataset):
        return {MEAN: {"darcy": 0.8, "pipe": 0.95}[dataset], "identity": 0.7}

    def label_error(self, dataset):
        return {"darcy": 0.002, "pipe": None}[dataset]

    def history(self, row):
        return [Epoch(k, loss, 0.1, 1e-3, 1.0) for k, loss in enumerate(LOSSES[row.operator], 1)]

    def source(self, dataset):
        stored = SimpleNamespace(dim=2, ids=torch.arange(40, 42))
        return SimpleNamespace(stored=lambda split: stored)


def part(dataset: str = "darcy", rows=ROWS, **words) -> _DatasetReport:
    return _DatasetReport(Run(**words), dataset, rows, CPU)


def test_operators_come_in_the_order_of_their_errors():
    found = part()
    assert [*found.finished] == ["GT", "FNO"]
    assert found.means == {"GT": pytest.approx(0.2), "FNO": pytest.approx(0.55)}
    assert found.headline == ("smallest error on darcy (GT)", "2.00e-1")
    assert part("pipe").headline == ("smallest error on pipe (GT)", "9.00e-1")


def test_rows_of_the_second_protocol_stand_beside_the_first():
    rows = [row("FNO", 0.4, protocol="validation"), row("FNO", 0.3, protocol="published")]
    both = part(rows=rows, protocols=("validation", "published"))
    assert (both.finished["FNO"], both.watched["FNO"]) == (rows[:1], rows[1:])
    alone = part(rows=rows, protocols=("published",))
    assert (alone.finished["FNO"], alone.watched) == (rows[1:], {})
    assert part()._protocol_shown == "validation"
    assert alone._protocol_shown == "published"


def test_trivial_predictions_and_labels_are_references():
    assert part().references == {
        MEAN: 0.8,
        "identity": 0.7,
        "labels, as stated by their solver": 0.002,
    }
    other = part(measure="max").references
    assert other["labels, as stated by their solver (relative L² error)"] == 0.002
    assert part("pipe").references == {MEAN: 0.95, "identity": 0.7}
    assert part(rows=[]).references == {}
    assert part()._axis == "mean relative L² error"
    assert part(measure="max")._axis == "mean error (max)"


def test_failed_and_unstable_trainings_are_told():
    assert part()._notes() == [
        "PiT, protocol published, seed 2: diverged",
        "FNO, seed 0: the training was unstable; the loss of its last epoch is 15 times its "
        "smallest.",
        "FNO, seed 1: the training was unstable; the loss of its last epoch is 15 times its "
        "smallest.",
    ]


def test_a_cell_of_the_overview_says_why_it_has_no_error():
    one, other = part(), part("pipe")
    assert benchmark_report._cell(one, "FNO") == "5.50e-1 ± 0.71e-1"
    assert benchmark_report._cell(one, "GT") == "2.00e-1 *"
    assert benchmark_report._cell(one, "PiT") == "failed"
    assert benchmark_report._cell(other, "FNO") == "unfinished"
    assert benchmark_report._cell(other, "PiT") == ""


def test_the_overview_has_all_operators_and_references_of_each_dataset(monkeypatch):
    calls = []
    monkeypatch.setattr(benchmark_report, "against_costs", lambda run, drawn: calls.append(drawn))
    parts = [part(), part("pipe")]
    section = benchmark_report._overview(parts)
    (table,) = section.tables
    assert table.header == ("operator", "darcy", "pipe")
    assert table.rows == [
        ("GT", "2.00e-1 *", "9.00e-1"), ("FNO", "5.50e-1 ± 0.71e-1", "unfinished"),
        (MEAN, "8.00e-1", "9.50e-1"), ("identity", "7.00e-1", "7.00e-1"),
        ("labels, as stated by their solver", "2.00e-3", ""),
    ]  # fmt: skip
    assert section.text == ("*: the time of the budget was spent before the error was flat.",)
    assert calls == [[(parts[0].finished, 0.8), (parts[1].finished, 0.95)]]
    assert benchmark_report._overview([part("pipe")]).text == ()


def test_other_grids_have_a_line_for_each_operator_and_its_publication(monkeypatch):
    drawn = []
    monkeypatch.setattr(benchmark_report.figures, "curves", lambda *a, **k: drawn.append((a, k)))
    monkeypatch.setattr(benchmark_report, "picture", lambda figure, name, caption: (name, caption))
    section = part()._other_grids()
    (table,) = section.tables
    assert table.header == ("operator", "8", "16", "32")
    assert table.rows == [
        ("GT", "–", "2.00e-1", "–"), ("FNO", "4.00e-1", "5.50e-1", "–"),
        ("FNO, published", "5.00e-2", "4.00e-2", ""),
    ]  # fmt: skip
    assert section.title == "darcy: other grids without training again"
    assert section.text == (
        "Trained on 16 points of each axis; the same functions on all grids.",
        "GT at 8, 32: too coarse", "FNO at 32: too fine",
    )  # fmt: skip
    assert section.pictures == (("darcy-grids", "Mean error on each grid."),)
    (((series, x, y), options),) = drawn
    assert series == {"GT": ([16], [0.2]), "FNO": ([8, 16], [0.4, 0.55])}
    assert (x, y) == ("points of each axis", "mean relative L² error")
    assert options["ticks"] == {8: "8", 16: "16", 32: "32"}
    assert (options["trained"], options["log"]) == (16, True)
    assert [*options["looks"]] == ["GT", "FNO"]


def test_errors_stand_over_the_parameters_and_the_mean_time_of_the_seeds(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        benchmark_report.figures, "errors_against_costs", lambda *a: drawn.append(a)
    )
    monkeypatch.setattr(benchmark_report, "picture", lambda figure, name, caption: (name, caption))
    monkeypatch.setattr(
        benchmark_report, "learning", lambda run, rows, watched, name: (watched, name)
    )
    found = part()._curves()
    assert found == [
        ("darcy-costs", "Mean error against parameters and against training time."),
        ("validation", "darcy-learning"),
    ]
    ((costs, means, baseline, label, looks),) = drawn
    assert costs == {
        "parameters": {"GT": 500, "FNO": 300}, "seconds of training": {"GT": 2, "FNO": 6},
    }  # fmt: skip
    assert means == part().means
    assert (baseline, label, [*looks]) == (0.8, "mean relative L² error", ["GT", "FNO"])
    rows = [one.model_copy(update={"protocol": "published"}) for one in ROWS]
    assert part(rows=rows, protocols=("published",))._curves()[1][0] == "test"


def test_couplings_are_derivatives_of_the_prediction():
    matrix = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.25, 4.0], [0.0, 7.0, -1.0]])

    def predictor(a, points, y):
        first = (a[..., 0] ** 2 / 2) @ matrix.T
        return torch.stack([first, 100 * first], -1)

    values = torch.tensor([[[2.0, 9.0], [3.0, 8.0], [5.0, 7.0]]])
    pairs = SimpleNamespace(a=values, points=None, y=None)
    found = benchmark_report._jacobian(predictor, pairs)
    assert found.tolist() == (matrix * values[0, :, 0]).tolist()

    def many(a, points, y):
        return a.repeat(1, 100, 1)

    assert benchmark_report._jacobian(many, pairs).shape == (100, 3)  # every third of 300 points
