"""Formulas of a run as LaTeX: its equation, its map, its loss and its error."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from operators.data import AtTime, Block, InTime, Rollout, Task
from pdegen.store.store import Store
from pipelines.declared.physics import physics_of
from pipelines.declared.registry import H1Loss, L1Loss, LossSpec, WeightedH1Loss
from pipelines.reports import latex
from pipelines.reports.document import Formula
from pipelines.runs.finished import FinishedRun

_CONSTANTS = {"viscosity": r"\nu", "speed": "c", "source": "f"}  # keys of recipes in formulas
_NAMES = _CONSTANTS | {
    "grad": r"\nabla ", "div": r"\nabla\cdot ", "laplace": r"\Delta ", "eps": r"\varepsilon ",
    "tr": r"\operatorname{tr}", "dv": r"\mathrm{d}v", "du": r"\mathrm{d}u", "dt": r"\mathrm{d}t",
    "dn": r"\mathrm{d}n", "rho": r"\rho ", "sigma": r"\sigma ", "nu": r"\nu ", "eta": r"\eta ",
}  # fmt: skip
_TOKEN = re.compile(
    r"(?P<name>[A-Za-z]+)(?P<index>\d*)|(?P<number>\d+(?:\.\d+)?(?:e[-+]?\d+)?)|_(?P<below>\w+)"
    r"|\^(?P<power>\([^)]*\)|\w+)|(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)|(?P<space>\s+)|(?P<sign>.)"
)
_INDEXED = re.compile(r"(?P<letter>\w)(?P<index>[₀-₉]*)")
_SPACE, _WORDS = r"\ ", r"\text{"


def of_run(run: FinishedRun) -> tuple[Formula, ...]:
    """The equation, what is learned, the loss of training and the error that is reported."""
    held, experiment = run.store.said, run.experiment
    problem = held.recipe.problem
    constants = "".join(
        rf",\quad {sign} = {_number(f'{problem[name]:.6g}')}"
        for name, sign in _CONSTANTS.items()
        if name in held.equation and isinstance(problem.get(name), int | float)
    )
    given, u = experiment.variables[0], symbol(run.store, experiment.data.target)
    inputs = [symbol(run.store, name) for name in ([given] if isinstance(given, str) else given)]
    return (
        Formula("Equation", equation(held.equation) + constants),
        Formula("Learned map", learned(experiment.learned, inputs, u)),
        Formula("Training loss", loss(experiment.training.loss, u)),
        Formula("Error of a sample", _quotient(u, 2)),
    )


def symbol(store: Store, name: str) -> str:
    """What the equation of a store calls a variable; its name where the equation does not say."""
    drawing = physics_of(store).drawing.get(name)
    return (drawing.symbol if drawing else "") or name


def learned(task: Task, inputs: list[str], u: str) -> str:
    r"""What is predicted, p, from what; frames of a trajectory are numbered from 1.

    >>> learned(Rollout(history=2), ["a"], "w")
    '(w_{k-1},\\,w_{k}) \\mapsto p \\approx w_{k+1}'
    """
    u = _letters(u)
    if not isinstance(task, InTime):
        return rf"{_letters(', '.join(inputs))} \mapsto p \approx {u}"
    if isinstance(task, Rollout):
        seen, target = _frames(u, "k", task.history), f"{u}_{{k+1}}"
        seen += [_letters(name) for name in inputs] * task.static
    else:
        seen = _frames(u, "", task.history) or [_letters(name) for name in inputs]
        seen += ["t"] * isinstance(task, AtTime)
        later = rf"({u}_{{{task.history + 1}}},\,\dots)"
        target = later if isinstance(task, Block) else f"{u}(t)"
    listed = r",\,".join(seen)
    given = listed if len(seen) == 1 else f"({listed})"
    return rf"{given} \mapsto p \approx {target}"


def _frames(u: str, last: str, count: int) -> list[str]:
    """So many frames, the first ones, or those up to the one with the number `last`."""
    numbers = range(1 - count, 1) if last else range(1, count + 1)
    frames = [f"{u}_{{{last}{number or '' if last else number}}}" for number in numbers]
    return frames if count < 4 else [frames[0], r"\dots", frames[-1]]


def equation(words: str) -> str:
    r"""The one-line formula of an equation as LaTeX; words in it stay words.

    >>> equation("u_t + u u_x = viscosity u_xx, x on the circle of length 1")
    'u_{t} + u u_{x} = \\nu u_{xx},\\ x\\text{ on the circle of length }1'
    """
    tokens = list(_tokens(words))
    plain = [kind == "name" and len(word) > 1 and word not in _NAMES for kind, word in tokens]
    for i, (kind, word) in enumerate(tokens):  # an article, or a number, between two words
        between = plain[i - 2 : i - 1] == [True] and plain[i + 2 : i + 3] == [True]
        if between and (kind == "number" or word in ("a", "A")):
            plain[i] = True
    parts = list[str]()
    for i, (kind, word) in enumerate(tokens):
        before, after = any(plain[max(0, i - 1) : i]), any(plain[i + 1 : i + 2])
        if plain[i] or (kind == "space" and (before or after)):
            parts.append(rf"\text{{{latex.text(word)}}}")
            if len(parts) > 1 and parts[-2].startswith(_WORDS):  # one text
                parts[-2:] = [parts[-2][:-1] + parts[-1][len(_WORDS) :]]
        elif kind == "space":
            parts.append(_SPACE if parts and parts[-1] in ",;" else " ")
        else:
            parts.append(_symbol(kind, word))
    return "".join(parts)


def _tokens(words: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(words):
        for kind, word in found.groupdict().items():
            if word:
                yield kind, word


def loss(of: LossSpec, u: str) -> str:
    """A loss of training: the mean of it over a batch is minimised."""
    if isinstance(of, L1Loss):
        return _quotient(u, 1)
    if not isinstance(of, H1Loss | WeightedH1Loss):
        return _quotient(u, 2)
    u, weight = _letters(u), r"a^{1/2}" if isinstance(of, WeightedH1Loss) else ""
    derivatives = rf"\frac{{\|{weight} D(p - {u})\|_{{L^2}}}}{{\|{weight} D{u}\|_{{L^2}}}}"
    return rf"{_quotient(u, 2)} + \sqrt{{\gamma h}}\,{derivatives},\quad \gamma = {of.gamma:g}"


def _quotient(u: str, order: int) -> str:
    u = _letters(u)
    return rf"\frac{{\|p - {u}\|_{{L^{order}}}}}{{\|{u}\|_{{L^{order}}}}}"


def _letters(names: str) -> str:
    r"""Names of variables: one letter, with an index or without, is a symbol, more are upright.

    >>> _letters("u₀, die")
    'u_{0},\\,\\mathrm{die}'
    """
    words = list[str]()
    for name in names.split(", "):
        letter = _INDEXED.fullmatch(name)
        if letter is None:
            words.append(rf"\mathrm{{{latex.text(name)}}}")
            continue
        below = unicodedata.normalize("NFKC", letter["index"])
        index = f"_{{{below}}}" if below else ""
        words.append(latex.symbols(letter["letter"]).strip() + index)
    return r",\,".join(words)


def _symbol(kind: str, word: str) -> str:
    match kind:
        case "name":
            return _NAMES.get(word) or latex.symbols(word)
        case "number":
            return _number(word)
        case "below" | "index":
            return f"_{{{latex.symbols(word)}}}"
        case "power":
            return f"^{{{latex.symbols(word.strip('()'))}}}"
        case "raised":
            return latex.text(word).strip("$")  # ^{2}
        case _:
            return {".": r"\cdot ", "|": "|"}.get(word) or latex.symbols(word)


def _number(word: str) -> str:
    digits, _, power = word.partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if power else digits
