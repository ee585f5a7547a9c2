"""Headlines of recipes. A headline is a template such as "ν = {viscosity}", filled with the values
of a recipe."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pydantic import BaseModel

from pdegen.equations.base import Problem

_PLACEHOLDER = re.compile(r"\{([a-z]\w*(?:\.\w+)*)\}")
_DERIVED = ("points", "formula", "samples")


class HeadlineError(ValueError):
    """A headline names a key that the recipe does not have. The message has one line."""


def headline(template: str, problem: Problem, samples: int) -> str:
    """Fill a template with the values of a recipe.

    A template contains keys of the problem in braces, such as `{solver.refinement}`. A table such
    as `{force}` is replaced by a sentence that describes it. `{points}` is replaced by the shape of
    the domain, `{formula}` by the equation, and `{samples}` by the number of samples. Raises
    HeadlineError if a key is unknown.
    """

    def value(match: re.Match[str]) -> str:
        return _printed(match[1], problem, samples)

    return _PLACEHOLDER.sub(value, template)


def keys_of(template: str) -> list[str]:
    """The keys in a template.

    >>> keys_of("u(0) -> u at t = {times} on {points} points, {0, 1}")
    ['times', 'points']
    """
    return _PLACEHOLDER.findall(template)


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
            keys = [*_DERIVED, *type(problem).model_fields]
            raise HeadlineError(
                f"the headline prints {{{key}}}, which the problem does not have: "
                f"its keys are {', '.join(keys)}, or --set summary=... gives another headline"
            )
    if isinstance(value, BaseModel):
        sentence = problem.physics().sentences.get(key) or getattr(value, "sentence", None)
        if not isinstance(sentence, str):
            raise HeadlineError(f"the headline prints {{{key}}}, a table: name one of its keys")
        return sentence
    if isinstance(value, Sequence) and not isinstance(value, str):
        return listed(list(value))
    return number(value) if isinstance(value, float) else str(value)


def listed(values: Sequence[object]) -> str:
    """A list of values as text. If there are three or more numbers, the text has only the first,
    the last and the count.

    >>> listed([0.5]), listed([1.0, 2.0, 3.0]), listed(["u", "v"])
    ('0.5', '1 ... 3 (3 times)', 'u, v')
    """
    words = [number(value) if isinstance(value, float) else str(value) for value in values]
    if len(words) < 3 or isinstance(values[0], str):
        return ", ".join(words)
    return f"{words[0]} ... {words[-1]} ({len(words)} times)"


def number(value: float) -> str:
    """A number as text with up to six digits. A number that needs more digits is written as a
    multiple of 1/2π, if the factor has at most three digits.

    >>> number(0.1 / (2 * math.pi)), number(1 / (2 * math.pi)), number(1e-5), number(0.3)
    ('0.1/2π', '1/2π', '1e-05', '0.3')
    """
    turns = value * 2 * math.pi
    short = f"{turns:.3g}"
    if float(f"{value:.6g}") != value and math.isclose(turns, float(short), rel_tol=1e-14):
        return f"{short}/2π"
    return f"{value:.6g}"
