"""The parts of a noise study: a method, at a noise level, which may be a range; levels as text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdegen.schema import SchemaError

ALL = "all"
Trained = float | tuple[float, float]
CONSTANT = "constant"
_LEAST = 4  # cells of an axis


@dataclass(frozen=True)
class Cell:
    """A part of a noise study.

    Args:
        method: A classical method, or the level that a model was trained at, or the range of
            levels of one that is told them.
        at: The noise level of the test samples; None stands for the training itself.
        assumed_level: The level that a classical method or a model of a range assumes, as a
            multiple of the true level.
        corrected: Whether steps of a classical method follow a model's answer.
    """

    method: str | Trained
    seed: int = 0
    at: float | None = None
    assumed_level: float = 1.0
    corrected: bool = False

    @property
    def name(self) -> str:
        """Of the method, for people."""
        name = self.method if isinstance(self.method, str) else f"trained at {word(self.method)}"
        name += ", corrected" if self.corrected else ""
        return (
            name if self.assumed_level == 1 else f"{name}, told {self.assumed_level:.2g} times it"
        )


def key(level: Trained) -> str:
    """A level, or the ends of a range, as a part of a file name."""
    return f"{level[0]:g}-to-{level[1]:g}" if isinstance(level, tuple) else f"{level:g}"


def word(level: Trained) -> str:
    """A level in words; a range is that of all levels of its study."""
    return "all levels" if isinstance(level, tuple) else f"{level:g}"


def parse_trained(text: str, tested: tuple[float, ...]) -> tuple[Trained, ...]:
    """Noise levels to train at; ALL stands for the range of them and of those that are tested.

    >>> parse_trained("0.01,all", (0.0, 0.1))
    (0.01, (0.0, 0.1))
    """
    words = [one.strip() for one in text.split(",")]
    numbers = parse_levels(",".join(one for one in words if one != ALL)) if {*words} - {ALL} else ()
    every = (*numbers, *tested)
    levels = iter(numbers)
    return tuple((min(every), max(every)) if one == ALL else next(levels) for one in words)


def parse_levels(text: str) -> tuple[float, ...]:
    """Noise levels separated by commas.

    >>> parse_levels("0,0.01,0.1")
    (0.0, 0.01, 0.1)
    """
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise SchemaError(f"levels are numbers separated by commas, got {text!r}") from None


def check_levels(name: str, levels: Sequence[Trained]) -> None:
    """Raise SchemaError unless levels name different files, with one range at most."""
    if not levels or len(set(map(key, levels))) < len(levels):
        raise SchemaError(f"{name} levels must differ, and be at least one, got {levels}")
    if sum(isinstance(level, tuple) for level in levels) > 1:
        raise SchemaError(f"{name} levels have one range at most, got {levels}")


def check_kinds(assumed: str, tested: str | None) -> None:
    """Raise SchemaError where methods cannot be told one kind of noise and tested with another.

    Levels of "snr" are decibels, and "sensors" leave points out.
    """
    if assumed == tested:
        raise SchemaError(f"test kind: methods are told {assumed} noise already, leave it out")
    apart = {"snr", "sensors"} & {assumed, tested}
    if tested is not None and apart:
        raise SchemaError(
            f"test kind: data with {tested} noise cannot be taken for data with {assumed} noise: "
            f"{' and '.join(sorted(apart))} has levels or points of its own"
        )


def check_classical(
    inversion_samples: int, assumed_levels: tuple[float, ...], cells: int | None
) -> None:
    """Raise SchemaError where classical methods cannot be tested so."""
    if cells is not None and cells < _LEAST:
        raise SchemaError(f"--cells must be at least {_LEAST}, got {cells}")
    if inversion_samples < 1:
        raise SchemaError(f"--inversion-samples must be at least 1, got {inversion_samples}")
    if 1.0 not in assumed_levels or not all(0 < factor < math.inf for factor in assumed_levels):
        raise SchemaError(
            f"--assumed-level must be positive numbers with 1 among them, got {assumed_levels}"
        )
    if len({f"{factor:g}" for factor in assumed_levels}) < len(assumed_levels):
        raise SchemaError(
            f"--assumed-level must be numbers that differ in six digits, got {assumed_levels}"
        )
