"""Bounds of the arguments of constructors that files set: files are checked against them.

Three of them equal those of `pdegen.schema`, which operators do not import.
"""

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # of a running mean, or a fraction that may be 0
Fraction = Annotated[float, Field(gt=0, lt=1)]
Factor = Annotated[float, Field(gt=0, le=1)]
Divisor = Annotated[float, Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=2**32)]


def require(condition: bool, requirement: str, *values: object) -> None:
    """Raise ValueError unless a condition holds.

    >>> require(-1 >= 0, "weight_decay must be >= 0", -1)
    Traceback (most recent call last):
    ValueError: weight_decay must be >= 0, got -1
    """
    if not condition:
        raise ValueError(f"{requirement}, got {', '.join(map(str, values))}")
