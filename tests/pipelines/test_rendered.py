"""Every kind of report in situations that break pictures and tables: contrast 200, one level,
twelve columns; and two datasets that have no fact in common."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Benchmark
from pipelines.config.experiment import load_experiment
from pipelines.reports import figures, noise_pictures, pictures
from pipelines.reports.benchmark_report import _DatasetReport, write_benchmark_report
from pipelines.reports.comparison_report import write_comparison
from pipelines.reports.document import plus_minus, significant
from pipelines.reports.fields import Functions, Look, sheet, wrapped
from pipelines.reports.noise_report import learned
from pipelines.reports.report import facts, write_report
from pipelines.runs.comparison import read_comparison
from pipelines.runs.finished import read_finished
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.noise import NoiseStudy
from tests.pipelines.conftest import SMALL_DARCY, a_run
from tests.pipelines.page import Page

CPU = torch.device("cpu")
TWELVE = (0.0, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2)
INVERSE = {
    **SMALL_DARCY, "resolutions": [13], "data.target_resolution": 5, "training.epochs": 1,
    "data.overrides.above": 200.0, "data.overrides.below": 1.0,
}  # fmt: skip


def faults(figure: Figure) -> list[str]:
    """What a reader would miss: marks of a formula, or parts beyond the edge of the figure."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    drawn, edge = figure.get_tightbbox(renderer), figure.bbox_inches
    found = [
        f"{side} {abs(over):.2f} inches beyond the edge"
        for side, over in (
            ("left", edge.x0 - drawn.x0), ("below", edge.y0 - drawn.y0),
            ("right", drawn.x1 - edge.x1), ("above", drawn.y1 - edge.y1),
        )
        if over > 0.02
    ]  # fmt: skip
    return [*found, *(t for t in texts(figure) if "$" in t or "mathdefault" in t)]


def texts(figure: Figure) -> list[str]:
    return [one.get_text() for one in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


@contextmanager
def checked():
    """Every figure that is written is looked at; there is one at least, and none has a fault."""
    every, write = list[list[str]](), figures._file

    def looked_at(figure, suffix):
        content = write(figure, suffix)
        every.append(faults(figure))
        return content

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_file", looked_at)
        yield
    assert every
    assert [found for found in every if found] == []


def leads_with_results(page: str, settings: str) -> None:
    """Sections with figures or scores stand before that of the settings, and the equation stands
    once, as mathematics."""
    titles = re.findall(r"<h2>([^<]*)</h2>", page)
    assert titles.index(settings) > len(titles) / 2
    first = page[page.index("<section") : page.index("</section>")]
    assert "<table" in first
    assert len(re.findall(r"<dt>Equation</dt>", page)) <= 1


@pytest.fixture(scope="module")
def contrast(tmp_path_factory):
    """A run on two phases whose values differ by a factor of 200."""
    return a_run(tmp_path_factory, "contrast", INVERSE, "darcy-inverse-quick")


def test_a_run_at_contrast_200(contrast):
    with checked():
        path = write_report(*contrast, CPU)
    page = path.read_text()
    leads_with_results(page, "What was run")
    rows = Page(page).rows
    assert rows[0][:2] == ["checkpoint", "mean"]
    assert [row[1] for row in rows if row[0] == "Equation"] == []


@pytest.mark.parametrize("levels", [(40.0,), TWELVE], ids=["one level", "twelve columns"])
def test_a_noise_study_at_contrast_200(contrast, tmp_path, levels):
    _, store = contrast
    kind = {"noise.kind": "snr", "noise.level": 40.0} if len(levels) == 1 else {}
    experiment = load_experiment("darcy-inverse-quick").with_overrides(INVERSE | kind)
    study = NoiseStudy(experiment, store, tmp_path / "s", levels[-1:], levels, 1, only=("none",))
    study.run(CPU)
    from pipelines.reports.noise_report import write_noise_report

    with checked():
        path = write_noise_report(study, CPU)
    page = path.read_text()
    leads_with_results(page, "Setting")
    assert len(re.findall(r"<dt>Equation</dt>", page)) == 1
    assert "40 dB" in page if len(levels) == 1 else "test samples [σ(x)]" in page
    assert "From 43 x 43" not in page.partition("<nav")[0]  # the points are 13 x 13
    assert "13²" in page.partition("<nav")[0]
    pictures = list((study.folder / "pictures").glob("reconstructions*.svg"))
    assert len(pictures) == len(levels) + 1  # and the worst sample at the highest level


def test_comparisons_and_benchmarks(three, runs, benchmarked, tmp_path):
    found = read_comparison([runs[name] for name in ("deep", "run", "seeded")], tmp_path / "c", CPU)
    with checked():
        leads_with_results(write_comparison(found, tmp_path / "c").read_text(), "What differs")
    run = BenchmarkRun(benchmarked.benchmark, benchmarked.stores, benchmarked.folder)
    with checked():
        page = write_benchmark_report(run, CPU).read_text()
    leads_with_results(page, "burgers: protocol")
    assert Page(page).rows[0][:2] == ["operator", "mean error"]
    assert len(re.findall(r"<dt>Equation</dt>", page)) == 1


def test_every_picture_of_noisy_inputs_says_so(inverse, tmp_path, monkeypatch):
    """Also those of the slides."""
    run, drawn, noisy = shutil.copytree(inverse[0], tmp_path / "run"), pictures.drawn, []

    def noted(*arguments, **options):
        figure = drawn(*arguments, **options)
        noisy.append(any(" with noise" in text for text in texts(figure)))
        return figure

    monkeypatch.setattr(pictures, "drawn", noted)
    write_report(run, inverse[1], CPU)
    assert len(noisy) > 1
    assert all(noisy)


# charts


@pytest.mark.parametrize("columns", [1, 2, 12])
@pytest.mark.parametrize("rows", [1, 9])
def test_a_matrix_of_any_size_has_its_numbers_in_its_cells(rows, columns):
    random = np.random.default_rng(0)
    means = random.uniform(0.01, 2.0, (rows, columns))
    halves = random.uniform(0.0, 0.1, (rows, columns))
    names = [f"galerkin-transformer trained at all levels, {k}" for k in range(rows)]
    failed = random.random((rows, columns)) < 0.5
    levels = [f"{level:g}" for level in TWELVE[:columns]]
    figure = figures.heat_map(means, halves, names, levels, "level [dB]", failed)
    assert faults(figure) == []
    renderer = FigureCanvasAgg(figure).get_renderer()
    axes = figure.axes[0]
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    for line in (boxes[k : k + columns] for k in range(0, len(boxes), columns)):
        assert all(left.x1 < right.x0 for left, right in pairwise(line))
    for text in axes.texts:
        column, row = map(int, text.get_position())
        words = plus_minus(significant(means[row, column]), halves[row, column])
        assert text.get_text().replace("\n", " ") == "× " * int(failed[row, column]) + words


def test_error_bars_are_drawn_to_both_ends():
    """Also those whose lower end is below the smallest mean, or below 0."""
    means, halves = [0.1, 0.2, 0.3], [0.09, 0.05, 0.5]
    axes = figures.curves({"m": ([0, 1, 2], means)}, "x", spreads=[halves]).axes[0]
    (bars,) = [c for c in axes.containers if c.lines[2]]
    low, high = axes.get_ylim()
    ends = [segment[:, 1] for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose([top for _, top in ends], np.add(means, halves))
    np.testing.assert_allclose([end for end, _ in ends], [0.01, 0.15, low])
    assert low < 0.01
    assert high > 0.8
    axes = figures.dots({"a": 0.1, "b": 0.2}, [0.15, 0.1]).axes[0]
    assert axes.get_xlim()[0] < -0.05


@pytest.mark.parametrize("ends", [(1.0, 200.0), (0.72, 0.74), (1e-6, 1e3)])
def test_logarithmic_colour_bars_have_plain_numbers(ends):
    figure = Figure()
    axes = figure.subplots()
    image = axes.imshow(np.geomspace(*ends, 16).reshape(4, 4), norm=LogNorm(*ends))
    bar = figures.colour_bar(figure, image, ax=axes)
    figure.draw_without_rendering()
    labels = [label.get_text() for label in bar.ax.get_yticklabels()]
    assert len(set(labels)) == 3
    assert faults(figure) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 13])
def test_every_row_of_a_figure_has_a_panel(count):
    values = np.linspace(1, 200, 4 * 9).reshape(4, 3, 3, 1)
    of = Functions(
        Look("a", "phases", True, (1.0, 200.0)), values, (Channel("a", "", None),), Box.cell(3, 3)
    )
    image = noise_pictures.Image("a long name of a method", of, values[0, ..., 0])
    line = np.arange(3.0), np.arange(3.0)
    first, _ = figures.panels(count, 3, 1.4)
    drawn = {
        "sheet": (sheet(wrapped([of.panel(0, 0)] * count)), count),
        "panels": (first, count),
        "curves": (
            noise_pictures._curve_sheet(
                line, line, [("m", line, None)] * (count - 1), ["black"] * (count - 1), ("a", "b")
            ),
            count,
        ),
    }
    if count > 1:  # the data have a picture beside the truth
        images, scale = [image] * count, of.scale(0)
        drawn["images"] = noise_pictures._image_sheet(images, scale, scale, ("a", "b")), count
    for name, (figure, expected) in drawn.items():
        rows = dict[int, int]()
        for axes in figure.axes:
            place = axes.get_subplotspec()
            if place is not None and axes.get_label() != "<colorbar>":
                rows[place.rowspan.start] = rows.get(place.rowspan.start, 0) + axes.axison
        assert min(rows.values()) >= 1, name
        assert sum(rows.values()) == expected, name


# wording


@pytest.mark.parametrize(
    ("dim", "words"),
    [(1, "u on 13 points → a on the same points"), (2, "u on 13² points → a on the same points"),
     (3, "u on 13³ points → a on the same points")],
)  # fmt: skip
def test_the_map_of_a_study_is_worded_for_its_dimension(dim, words):
    data = SimpleNamespace(finest_resolution=13, target_resolution=None)
    samples = SimpleNamespace(samples=lambda split, noise: SimpleNamespace(dim=dim))
    study = SimpleNamespace(experiment=SimpleNamespace(data=data), source=samples, names=("u", "a"))
    assert learned(study) == words
    data.target_resolution = 5
    assert learned(study) == words.replace("the same points", f"5{words[7:8].strip()} cells")


def test_a_run_is_worded_for_its_dimension(finished, darcy):
    line, square = (dict(facts(read_finished(*run, CPU))) for run in (finished, darcy))
    assert line["Trained on"].startswith("n = 16 points")
    assert square["Trained on"].startswith("n = 13 x 13 points")
    page = (darcy[0] / "report.html").read_text()
    assert "points along each axis" in page
    assert "points along each axis" not in (finished[0] / "report.html").read_text()


def two_datasets(order):
    """A benchmark of two datasets that differ in all that a report states of a dataset."""
    datasets = {
        "burgers": {
            "experiment": "benchmark-burgers-quick", "seeds": 2,
            "overrides": {"data.resolution": 16, "resolutions": [16, 32], "training.epochs": 2,
                          "training.batch": 2, "data.samples": 4},
        },
        "darcy": {
            "experiment": "benchmark-darcy-quick", "seeds": 3, "measure": "l1",
            "overrides": {"data.resolution": 13, "resolutions": [13], "training.epochs": 3,
                          "training.batch": 4, "normalization.target": "pointwise"},
        },
    }  # fmt: skip
    operator = {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 3}}
    return Benchmark.parse(
        {
            "name": "two", "summary": "Two datasets", "seeds": 1,
            "datasets": {name: datasets[name] for name in order},
            "operators": {"FNO": operator},
        },
        "two",
    )  # fmt: skip


def test_each_dataset_has_its_own_facts(burgers, darcy, tmp_path):
    """In any order, and as in a benchmark of it alone; no fact is that of the other dataset."""
    stores = {"burgers": str(burgers), "darcy": darcy[1]}
    told = list[dict[str, dict[str, str]]]()
    for order in (["burgers", "darcy"], ["darcy", "burgers"], ["burgers"], ["darcy"]):
        run = BenchmarkRun(two_datasets(order), {name: stores[name] for name in order}, tmp_path)
        parts = {name: _DatasetReport(run, name, [], CPU).protocol() for name in order}
        told.append({
            name: dict(part.tables[0].rows)
            | {"Equation": part.formulas[0].latex, "Citation": part.listings[0][1]}
            for name, part in parts.items()
        })  # fmt: skip
    both, *others = told
    for other in others:
        for name, of in other.items():
            assert of == both[name]
    first, second = both["burgers"], both["darcy"]
    same = {"Searched"}  # of the benchmark
    assert {key for key in first.keys() & second.keys() if first[key] == second[key]} <= same
    assert {"Data", "Fingerprint", "Content digest", "Citation", "Label error", "Seeds"} <= (
        first.keys() & second.keys()
    )
    for name, of in both.items():
        metadata = open_sealed(stores[name]).metadata
        assert of["Content digest"] == metadata.content
        assert metadata.content in of["Citation"]
