"""Declarations of noise for recipes of derived stores and for experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from pdegen.sampling.noise import (
    CorrelatedNoise,
    EnsembleNoise,
    MultiplicativeNoise,
    NoiseModel,
    PublishedNoise,
    RelativeNoise,
    SensorNoise,
    SNRNoise,
)
from pdegen.schema import Positive, Strict, near

KINDS: dict[str, type[NoiseModel]] = {
    "ensemble": EnsembleNoise,
    "relative": RelativeNoise,
    "snr": SNRNoise,
    "multiplicative": MultiplicativeNoise,
    "correlated": CorrelatedNoise,
    "sensors": SensorNoise,
    "published": PublishedNoise,
}
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(KINDS)]  # the words that files may have
KEYS_OF_KIND: dict[str, dict[str, float]] = {  # keys of one kind only, with their defaults
    "correlated": {"length": 0.1},
    "sensors": {"fraction": 0.1},
}


class NoiseKind(Strict):
    """Declaration of a kind of noise, without its level.

    Args:
        kind: Name of the noise model (see `pdegen.sampling.noise`).
        seed: Seed of the noise.
        length: Correlation length divided by the length of the domain (0.1); for "correlated" only.
            [1]
        fraction: Share of the points that have a sensor (0.1); for "sensors" only. [1]
    """

    kind: Kind = "ensemble"
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    length: Positive | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None

    @field_validator("kind", mode="before")
    @classmethod
    def _known(cls, kind: Any) -> Any:
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}: {near(str(kind), list(KINDS))}")
        return kind

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        defaults = KEYS_OF_KIND.get(str(content.get("kind")), {})
        given = {key: value for key, value in content.items() if value is not None}
        return defaults | given

    @model_validator(mode="after")
    def _applies(self) -> NoiseKind:
        allowed = KEYS_OF_KIND.get(self.kind, {})
        for key in ("length", "fraction"):
            if getattr(self, key) is not None and key not in allowed:
                raise ValueError(f"key {key!r} does not apply to {self.kind}")
        return self

    @model_serializer(mode="wrap")
    def _in_order(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise with kind and level first. Stores keep this order of keys."""
        table = content(self)
        return {key: table[key] for key in ("kind", "level") if key in table} | table

    def check_level(self, level: float) -> None:
        """Raise ValueError if the level is invalid for this kind."""
        if level < 0 and self.kind != "snr":
            raise ValueError(f"the level of {self.kind} noise must be >= 0, got {level}")

    def at(self, level: float) -> NoiseModel:
        """The noise model for a level."""
        if self.length is not None:
            return CorrelatedNoise(level, self.length)
        if self.fraction is not None:
            return SensorNoise(level, self.fraction)
        return KINDS[self.kind](level)


class Noise(NoiseKind):
    """Declaration of noise: its kind and level.

    Args:
        level: Strength of the noise, >= 0. For "snr" it is in decibels and may be negative.
            [dimensionless, dB of "snr"]
    """

    level: Annotated[float, Field(allow_inf_nan=False)]

    @model_validator(mode="after")
    def _possible(self) -> Noise:
        self.check_level(self.level)
        return self

    def build(self) -> NoiseModel:
        return self.at(self.level)
