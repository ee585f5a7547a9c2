"""LaTeX formulas of a run: the equation, the learned map, the loss and the error."""

import re
import unicodedata
from collections.abc import Sequence

from operators.data import AtTime, Block, Rollout, Task, TrajectoryTask
from operators.data.opening import names_of
from pdegen.equations.base import Named
from pdegen.equations.base import number as latex_number
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.declared import LossTable
from pipelines.config.experiment import physics_of
from pipelines.reports import latex
from pipelines.reports.document import Formula
from pipelines.runs.finished import FinishedRun

_INDEXED = re.compile(r"(?P<letter>\w)(?P<index>[₀-₉]*)")


def of_run(run: FinishedRun) -> tuple[Formula, ...]:
    """The equation, the learned map, the training loss and the reported error."""
    experiment = run.experiment
    inputs, targets = (
        [symbol(run.store, name) for name in names_of(names)] for names in experiment.variables
    )
    u = ", ".join(targets)
    return (
        Formula("Equation", equation(run.store)),
        Formula("Learned map", learned(experiment.learned, inputs, u, parameters(run))),
        Formula("Training loss", loss(experiment.training.loss, u)),
        Formula("Error of a sample", _quotient(u, 2)),
    )


def symbol(store: Store, name: str) -> str:
    """Symbol of a variable in the equation of a store, or its name if the equation declares no
    symbol."""
    drawing = physics_of(store).drawing.get(name)
    return (drawing.symbol if drawing else "") or name


def parameters(run: FinishedRun) -> list[str]:
    """Names of the numbers of a sample that the operator is given."""
    given = run.experiment.learned.parameters
    return list(physics_of(run.store).parameters) if given else []


def learned(task: Task, inputs: list[str], u: str, parameters: Sequence[str] = ()) -> str:
    r"""The learned map from inputs to the prediction p. Frames of a trajectory are numbered from 1.

    Args:
        task: The learning task.
        inputs: Symbols of the input functions.
        u: Symbol of the target, or symbols of several targets, separated by commas.
        parameters: Names of the numbers of a sample that are inputs too.

    >>> learned(Rollout(history=2), ["a"], "w")
    '(w_{k-1},\\,w_{k}) \\mapsto p \\approx w_{k+1}'
    """
    u, numbers = _function(u), [latex_number(Named(name)) for name in parameters]
    if not isinstance(task, TrajectoryTask):
        given = r",\,".join([_letters(", ".join(inputs)), *numbers])
        return rf"{f'({given})' if numbers else given} \mapsto p \approx {u}"
    if isinstance(task, Rollout):
        seen, target = _frames(u, "k", task.history), f"{u}_{{k+1}}"
        seen += [_letters(name) for name in inputs] * task.static + numbers
    else:
        seen = _frames(u, "", task.history) or [_letters(name) for name in inputs]
        seen += numbers + ["t"] * isinstance(task, AtTime)
        later = rf"({u}_{{{task.history + 1}}},\,\dots)"
        target = later if isinstance(task, Block) else f"{u}(t)"
    listed = r",\,".join(seen)
    given = listed if len(seen) == 1 else f"({listed})"
    return rf"{given} \mapsto p \approx {target}"


def _frames(u: str, last: str, count: int) -> list[str]:
    """Symbols of `count` successive frames of u. The index of the last frame is `last`. If `last`
    is empty, these are the first frames of the trajectory."""
    numbers = range(1 - count, 1) if last else range(1, count + 1)
    frames = [f"{u}_{{{last}{number or '' if last else number}}}" for number in numbers]
    return frames if count < 4 else [frames[0], r"\dots", frames[-1]]


def equation(store: Store) -> str:
    """The equation of a store in LaTeX. If its LaTeX is not known, or cannot be read, the equation
    is written as text."""
    words = latex.quoted(store.metadata.equation)
    if not store.metadata.recipe.problem:
        return words
    try:
        formula = Recipe.parse(store.raw_attributes["recipe"], store.url).problem.latex
    except SchemaError:
        return words
    return formula if formula and Formula("", formula).readable else words


def loss(of: LossTable, u: str) -> str:
    """LaTeX of the training loss of one sample. Training minimises the mean of this loss over a
    batch. A user's own loss is given by its name."""
    if of.name in ("l1", "l2"):
        return _quotient(u, int(of.name[1]))
    if of.name in ("mean-square", "squared-h1"):
        square = rf"\|p - {_function(u)}\|_{{L^2}}^2"
        if of.name == "mean-square":
            return square
        weight, gamma = "a " * of.arguments["weighted"], of.arguments["gamma"]
        slope = rf"\|{weight}D(p - {_function(u)})\|_{{L^2}}^2"
        return rf"{square} + \gamma h\,{slope},\quad \gamma = {gamma:g}"
    if of.name not in ("h1", "weighted-h1"):
        return rf"{_upright(of.name)}(p, {_function(u)})"
    truth, weight = _function(u), r"a^{1/2}" if of.name == "weighted-h1" else ""
    gamma = of.arguments["gamma"]
    slope = rf"\|{weight} D(p - {truth})\|_{{L^2}}"
    derivatives = rf"\frac{{{slope}}}{{\|{weight} D{truth}\|_{{L^2}}}}"
    return rf"{_quotient(u, 2)} + \sqrt{{\gamma h}}\,{derivatives},\quad \gamma = {gamma:g}"


def _quotient(u: str, order: int) -> str:
    u = _function(u)
    return rf"\frac{{\|p - {u}\|_{{L^{order}}}}}{{\|{u}\|_{{L^{order}}}}}"


def _upright(name: str) -> str:
    """A name in upright letters."""
    return rf"\mathrm{{{name}}}" if name.isascii() and name.isalnum() else latex.quoted(name)


def _function(names: str) -> str:
    """Names of variables in LaTeX; several are the components of one function, in brackets."""
    letters = _letters(names)
    return f"({letters})" if ", " in names else letters


def _letters(names: str) -> str:
    r"""Names of variables in LaTeX. Single letters (with or without an index) are italic, words are
    upright.

    >>> _letters("u₀, die")
    'u_{0},\\,\\mathrm{die}'
    """
    words = list[str]()
    for name in names.split(", "):
        letter = _INDEXED.fullmatch(name)
        if letter is None:
            words.append(_upright(name))
            continue
        below = unicodedata.normalize("NFKC", letter["index"])
        index = f"_{{{below}}}" if below else ""
        words.append(latex.symbols(letter["letter"]).strip() + index)
    return r",\,".join(words)
