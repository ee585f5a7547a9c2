"""Pictures of how a trained operator couples points: one test sample and a derivative.

The trainings are those of the benchmark `standard --quick` on Burgers' equation; operators that
need two dimensions are trained on its Darcy. An operator without a row in a table has the settings
of its class.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import operators
import pdegen
import pipelines
from pipelines.config.benchmark import Benchmark, Case, Entry, load_benchmark
from pipelines.config.declared import parse_model
from pipelines.config.experiment import Experiment
from pipelines.reports.fields import MEDIUM
from pipelines.reports.figures import TIMES, legend, save, styled
from pipelines.reports.palette import MODEL, QUIET, TRUTH

DECADES = 3  # of the derivative, below its largest value
TABLES = ("standard", "quick")  # the first that has the operator
DATASETS = ("burgers", "darcy")
UNIT = 0, 1, 0, 1


def experiment_of(name: str) -> Experiment:
    """The experiment whose training the picture of an operator shows."""
    for dataset in DATASETS:
        for table in map(_table, TABLES):
            for case in table.cases():
                if case.dataset == dataset and table.model(case).name == name:
                    return table.experiment(Case(dataset, case.operator), 0, {})
    table, model = _table(TABLES[0]), parse_model({"name": name})
    dataset = DATASETS[min(model.dims()) - 1]
    with_row = {**table.operators, name: Entry.parse({"model": {"name": name}}, name)}
    return table.model_copy(update={"operators": with_row}).experiment(Case(dataset, name), 0, {})


@cache
def _table(name: str) -> Benchmark:
    table = load_benchmark(name, sound=False)
    assert isinstance(table, Benchmark)
    return table if table.quick is None else table.quickly()


def caption(experiment: Experiment) -> str:
    """Caption of the picture: the derivative it shows, and the training before it."""
    recipe, training = experiment.data.load_recipe(), experiment.training
    first, end = recipe.splits.ranges(recipe.samples)["train"]
    samples = experiment.data.samples or end - first
    if recipe.problem.domain.dim == 1:
        point, axes = "$y$", f"{experiment.data.finest_resolution} points"
    else:
        point, axes = (
            "the point $y$ (cross)",
            f"{experiment.data.finest_resolution} points along each axis",
        )
    return (
        f"A test sample, and $\\lvert\\partial u(y)/\\partial a(x)\\rvert$: how strongly the "
        f"prediction at {point} depends on the input at $x$. Training: {training.epochs} epochs on "
        f"{samples} samples of [{recipe.name}](/generated/datasets/{recipe.name}.md), {axes}. The "
        "picture shows how the operator works; it is not a score."
    )


def draw(name: str, folder: Path, out: Path) -> None:
    """Train an operator and draw its picture.

    Args:
        name: The name of the operator.
        folder: Folder for the store and the run; an existing store is used again.
        out: The PNG file.
    """
    experiment = experiment_of(name)
    recipe = experiment.data.load_recipe()
    store = folder / f"{recipe.name}.zarr"
    if not store.exists():
        pdegen.generate(recipe, out=store, workers=1)
    checkpoint = pipelines.train(experiment, data=store, out=folder / name, overwrite=True)
    model = operators.load_model(checkpoint)
    test = operators.read_pairs(store, "test", resolution=experiment.data.finest_resolution)
    a, u, x = test.a[:1], test.u[0, ..., 0], test.x
    assert x is not None
    p = model.predict(a, x)[0, ..., 0]
    middle = tuple(n // 2 for n in u.shape)

    def values(given: torch.Tensor) -> torch.Tensor:
        predicted = model.predictor(given, x)[0, ..., 0]
        return predicted if predicted.ndim == 1 else predicted[middle]

    derivative = torch.autograd.functional.jacobian(values, a)[..., 0]  # (y, 1, x) or (1, x₁, x₂)
    drawn = _on_a_line if u.ndim == 1 else _on_a_square
    fields = (a[0, ..., 0], u, p, derivative[:, 0] if u.ndim == 1 else derivative[0])
    save(drawn(x.numpy(), *(field.numpy() for field in fields)), out)


def _decades(derivative: np.ndarray) -> np.ndarray:
    size = np.abs(derivative) / np.abs(derivative).max()
    return np.log10(np.maximum(size, 10.0**-DECADES))


@styled
def _on_a_line(
    x: np.ndarray, a: np.ndarray, u: np.ndarray, p: np.ndarray, derivative: np.ndarray
) -> Figure:
    figure = Figure(figsize=(4.8, 2.45))
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    left.plot(x[:, 0], a, color=QUIET, ls="--", label="input a")
    left.plot(x[:, 0], u, color=TRUTH, label="solution u")
    left.plot(x[:, 0], p, color=MODEL, label="prediction")
    left.set(xlabel="x", xlim=(0, 1))
    image = right.imshow(
        _decades(derivative), origin="lower", extent=UNIT, cmap=TIMES, vmin=-DECADES, vmax=0
    )
    right.set(xlabel="x, input", ylabel="y, prediction", xticks=[0, 1], yticks=[0, 1])
    right.grid(False)
    _bar(figure, image, right)
    legend(figure, left)
    return figure


@styled
def _on_a_square(
    x: np.ndarray, a: np.ndarray, u: np.ndarray, p: np.ndarray, derivative: np.ndarray
) -> Figure:
    figure = Figure(figsize=(6.2, 1.9))
    axes = figure.subplots(1, 4)
    low, high = float(min(u.min(), p.min())), float(max(u.max(), p.max()))
    panels = [
        ("input a", a, MEDIUM, None, None),
        ("solution u", u, TIMES, low, high),
        ("prediction", p, TIMES, low, high),
        ("derivative by a", _decades(derivative), TIMES, -DECADES, 0),
    ]
    for one, (title, field, colours, least, most) in zip(axes, panels, strict=True):
        image = one.imshow(
            field.T, origin="lower", extent=UNIT, cmap=colours, vmin=least, vmax=most
        )
        one.set_title(title)
    axes[3].plot(*x[tuple(n // 2 for n in u.shape)], "+", color="white", ms=9, mew=1.5)
    for one in axes:
        one.set(xticks=[], yticks=[])
        one.grid(False)
    _bar(figure, image, axes[3])
    return figure


def _bar(figure: Figure, image: AxesImage, axes: Axes) -> None:
    bar = figure.colorbar(image, ax=axes, label="log₁₀ |∂u(y)/∂a(x)| / largest", aspect=25)
    bar.ax.tick_params(labelsize=7.5)
