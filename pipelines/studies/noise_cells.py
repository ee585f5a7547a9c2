"""Cells of a noise study, each of which is a training or a test, and parsing of noise levels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdegen.schema import SchemaError

ALL = "all"
NONE = "none"  # as the only name of a classical method, it stands for no method
Trained = float | tuple[float, float]  # a level, or the ends of a range of levels
CONSTANT = "constant"
_LEAST = 4  # cells along an axis


@dataclass(frozen=True)
class Cell:
    """A part of a noise study: one training, or one test of a method.

    Args:
        method: Name of a classical method; or the noise level, or the range of levels, at which a
            model is trained. A model trained on a range has the level as an input.
        at: Noise level of the test samples; None for the training itself.
        assumed_level: Noise level that a classical method, or a model trained on a range, assumes.
            It is a multiple of the true level.
        corrected: Whether a classical method corrects the model's prediction.
        operator: Name of the model's operator; empty for the operator that the experiment declares,
            and for classical methods.
    """

    method: str | Trained
    seed: int = 0
    at: float | None = None
    assumed_level: float = 1.0
    corrected: bool = False
    operator: str = ""

    @property
    def name(self) -> str:
        """Name of the method, without its operator and the unit of levels."""
        return self.named()

    def named(self, unit: str = "") -> str:
        """Name of the method in reports, without its operator. `unit` is that of noise levels."""
        level = self.method
        name = level if isinstance(level, str) else f"trained at {word(level, unit)}"
        name += ", corrected" if self.corrected else ""
        factor = f", assuming {self.assumed_level:g} times the level"
        return name if self.assumed_level == 1 else f"{name}{factor}"


def key(level: Trained) -> str:
    """Text for a level, or for the ends of a range, in file names."""
    return f"{level[0]:g}-to-{level[1]:g}" if isinstance(level, tuple) else f"{level:g}"


def word(level: Trained, unit: str = "") -> str:
    """Text for a level in reports. A study has at most one range, which is called "all levels".

    >>> word(0.1), word(40.0, "dB"), word((0.0, 0.1))
    ('0.1', '40 dB', 'all levels')
    """
    return "all levels" if isinstance(level, tuple) else f"{level:g} {unit}".strip()


def parse_trained(text: str, tested: tuple[float, ...]) -> tuple[Trained, ...]:
    """Parse the noise levels to train at. The word ALL stands for a range.

    The range is the smallest that contains all other levels to train at and all levels in `tested`.

    >>> parse_trained("0.01,all", (0.0, 0.1))
    (0.01, (0.0, 0.1))
    """
    words = [word.strip() for word in text.split(",")]
    single = [word for word in words if word != ALL]
    numbers = parse_levels(",".join(single)) if single else ()
    every = (*numbers, *tested)
    levels = iter(numbers)
    return tuple((min(every), max(every)) if word == ALL else next(levels) for word in words)


def parse_levels(text: str) -> tuple[float, ...]:
    """Parse noise levels separated by commas.

    >>> parse_levels("0,0.01,0.1")
    (0.0, 0.01, 0.1)
    """
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise SchemaError(f"levels must be numbers separated by commas, got {text!r}") from None


def check_levels(name: str, levels: Sequence[Trained]) -> None:
    """Raise SchemaError if two levels have the same file name, or there is more than one range."""
    if not levels or len(set(map(key, levels))) < len(levels):
        raise SchemaError(f"{name} levels must be one or more different numbers, got {levels}")
    if sum(isinstance(level, tuple) for level in levels) > 1:
        raise SchemaError(f"{name} levels may contain only one range, got {levels}")


def check_kinds(assumed: str, tested: str | None) -> None:
    """Raise SchemaError unless methods that assume the noise kind `assumed` can be tested with the
    kind `tested`.

    Neither "snr" nor "sensors" can be combined with another kind, because the levels of "snr" are
    in decibels and "sensors" has data at some points only.
    """
    if assumed == tested:
        raise SchemaError(
            f"test kind: methods already assume {assumed} noise; leave this option out"
        )
    apart = {"snr", "sensors"} & {assumed, tested}
    if tested is not None and apart:
        raise SchemaError(
            f"test kind {tested}: methods that assume {assumed} noise cannot be tested with it, "
            f"because {' and '.join(sorted(apart))} noise has levels in dB or fewer points"
        )


def check_classical(
    inversion_samples: int,
    assumed_levels: tuple[float, ...],
    cells: int | None,
    only: Sequence[str] = (),
) -> None:
    """Raise SchemaError if classical methods cannot be tested with these options."""
    if NONE in only and (len(only) > 1 or cells is not None):
        raise SchemaError("--method none excludes other methods and --cells")
    if cells is not None and cells < _LEAST:
        raise SchemaError(f"--cells must be at least {_LEAST}, got {cells}")
    if inversion_samples < 1:
        raise SchemaError(f"--inversion-samples must be at least 1, got {inversion_samples}")
    if 1.0 not in assumed_levels or not all(0 < factor < math.inf for factor in assumed_levels):
        raise SchemaError(
            f"--assumed-level must be positive numbers that include 1, got {assumed_levels}"
        )
    if len({f"{factor:g}" for factor in assumed_levels}) < len(assumed_levels):
        raise SchemaError(
            f"--assumed-level must be numbers that differ in six digits, got {assumed_levels}"
        )
