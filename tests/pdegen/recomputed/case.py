"""What a case of an equation says: a small recipe without symmetry, other values of each key, and a
second computation of everything that a store holds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pdegen.equations.base import problem_from_table

SEED, SAMPLES = 3, range(5, 7)  # neither begins at 0

Content = dict[str, Any]


class Near(NamedTuple):
    """Values that a variable must equal.

    Args:
        values: The second computation.
        tolerance: Relative to the largest of them, in each sample.
    """

    values: Any
    tolerance: float

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.values)

    def off(self, stored: np.ndarray) -> float:
        """The largest distance over the tolerance."""
        expected, stored = np.asarray(self.values, float), np.asarray(stored, float)
        assert expected.shape == stored.shape, (expected.shape, stored.shape)
        rows = len(expected)
        size = abs(expected).reshape(rows, -1).max(axis=1) + 1e-300
        return float((abs(stored - expected).reshape(rows, -1).max(axis=1) / size).max()) / (
            self.tolerance
        )


class Between(NamedTuple):
    """Bounds of an estimate, sample by sample."""

    low: Any
    high: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.high)

    def off(self, stored: np.ndarray) -> float:
        """Largest ratio by which the estimate is outside its bounds; 1 within them."""
        low, high, stored = np.broadcast_arrays(self.low, self.high, np.asarray(stored, float))
        assert np.isfinite(stored).all()
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(stored < low, low / stored, np.where(stored > high, stored / high, 1.0))
        return float(off.max())


def stated(low: Any, high: Any) -> Between:
    """Bounds of a stated error, from those of the solver's: it includes rounding to float32."""
    rounding = 2.0**-24 / np.sqrt(8 * np.log(2))
    return Between(0.999 * np.hypot(low, rounding), 1.001 * np.hypot(high, rounding))


Expected = Mapping[str, Near | Between]


@dataclass(frozen=True)
class Case:
    """The second computation of an equation.

    Args:
        bases: Contents of `[problem]`, by name.
        recompute: From such a content, a seed and the numbers of samples to what each variable
            must be.
        rows: For each key, the base and what replaces its values; keys are dotted.
        others: Keys that name what has no alternative, or change no value of a sound sample.
    """

    bases: Mapping[str, Content]
    recompute: Callable[[Content, int, range], Expected]
    rows: Mapping[str, tuple[str, Mapping[str, Any]]]
    others: frozenset[str]

    def changed(self, key: str) -> Content:
        """The content of a row."""
        base, changes = self.rows[key]
        return replaced(self.bases[base], changes)


def replaced(content: Content, changes: Mapping[str, Any]) -> Content:
    """A content with other values of dotted keys."""
    found = copy.deepcopy(content)
    for key, value in changes.items():
        *path, last = key.split(".")
        table = found
        for part in path:
            table = table[part]
        table[last] = value
    return found


def whole(content: Content) -> Content:
    """The recipe's content with all defaults."""
    return problem_from_table(content).model_dump()


def stored(content: Content) -> dict[str, np.ndarray]:
    """Values computed by the package."""
    return _stored(json.dumps(content))


@cache
def _stored(text: str) -> dict[str, np.ndarray]:
    return problem_from_table(json.loads(text)).compute(SEED, SAMPLES)


# numbers of the streams, from NumPy's generator and the formulas of the documentation


def uniforms(seed: int, sample: int, count: int) -> np.ndarray:
    words = np.random.Philox(key=np.array([seed, sample], np.uint64)).random_raw(count)
    return ((words >> np.uint64(11)) + 0.5) * 2.0**-53


def pairs(seed: int, sample: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """ξ_k and ζ_k."""
    one, two = uniforms(seed, sample, 2 * count).reshape(-1, 2).T
    radius = np.sqrt(-2 * np.log(one))
    return radius * np.cos(2 * np.pi * two), radius * np.sin(2 * np.pi * two)
