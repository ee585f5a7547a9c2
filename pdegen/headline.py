"""A line for people, made from what a recipe declares: `{viscosity}` -> its value."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pydantic import BaseModel

from pdegen.equations.base import Problem

_PLACE = re.compile(r"\{([a-z]\w*(?:\.\w+)*)\}")
_DERIVED = ("points", "formula", "samples")


class HeadlineError(ValueError):
    """A headline asks for what its recipe does not have; one line."""


def headline(template: str, problem: Problem, samples: int) -> str:
    """The template with a value in place of each key of the problem, such as `{solver.refinement}`;
    a table such as `{force}` stands for its sentence, `{points}` are those of the domain,
    `{formula}` is the equation, `{samples}` their number. Raises HeadlineError on another key."""

    def value(found: re.Match[str]) -> str:
        return _printed(found[1], problem, samples)

    return _PLACE.sub(value, template)


def keys_of(template: str) -> list[str]:
    """The keys whose values a template prints.

    >>> keys_of("u(0) -> u at t = {times} on {points} points, {0, 1}")
    ['times', 'points']
    """
    return _PLACE.findall(template)


def _printed(key: str, problem: Problem, samples: int) -> str:
    if key == "samples":
        return f"{samples}"
    if key == "points":
        return " x ".join(map(str, problem.domain.shape))
    if key == "formula":
        return problem.formula
    value: object = problem
    for part in key.split("."):
        value = getattr(value, part, None)
        if value is None:
            known = [*_DERIVED, *type(problem).model_fields]
            raise HeadlineError(
                f"the headline prints {{{key}}}, which the problem does not have: "
                f"its keys are {', '.join(known)}, or --set summary=... gives another headline"
            )
    if isinstance(value, BaseModel):
        said = problem.physics().sentences.get(key) or getattr(value, "sentence", None)
        if not isinstance(said, str):
            raise HeadlineError(f"the headline prints {{{key}}}, a table: name one of its keys")
        return said
    if isinstance(value, Sequence) and not isinstance(value, str):
        return listed(list(value))
    return number(value) if isinstance(value, float) else str(value)


def listed(values: Sequence[object]) -> str:
    """Words, or the first and the last of several numbers, and how many there are.

    >>> listed([0.5]), listed([1.0, 2.0, 3.0]), listed(["u", "v"])
    ('0.5', '1 ... 3 (3 times)', 'u, v')
    """
    words = [number(value) if isinstance(value, float) else str(value) for value in values]
    if len(words) < 3 or isinstance(values[0], str):
        return ", ".join(words)
    return f"{words[0]} ... {words[-1]} ({len(words)} times)"


def number(value: float) -> str:
    """Six digits, or a short multiple of 1/2π where that is closer.

    >>> number(0.1 / (2 * math.pi)), number(1 / (2 * math.pi)), number(1e-5), number(0.3)
    ('0.1/2π', '1/2π', '1e-05', '0.3')
    """
    turns = value * 2 * math.pi
    short = f"{turns:.3g}"
    if float(f"{value:.6g}") != value and math.isclose(turns, float(short), rel_tol=1e-14):
        return f"{short}/2π"
    return f"{value:.6g}"
