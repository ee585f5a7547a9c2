"""Tables of an experiment: symmetries, normalisation and noise.

The tables of operators are in `models`, those of optimisers, schedules and losses in `choices`.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from torch import Tensor

from operators.data import Samples
from operators.training.step import Augmentation
from operators.transforms import CircleSymmetries, DiagonalShifts, Normalizer, SquareSymmetries
from pdegen.domains import Box, Cloud
from pdegen.sampling.noise import Levels, NoiseKind, NoiseModel
from pdegen.schema import NonNegative, SchemaError, Strict, brief

Level = Annotated[float, Field(allow_inf_nan=False)] | tuple[float, float]


class Symmetries(Strict):
    """Augmentation of training samples by random symmetries (`operators.transforms`).

    Args:
        shift: Random shifts along the circle.
        reflection: Random odd reflections u(x) -> -u(-x) of the circle.
        square: Random reflections and rotations of the square.
        diagonal: Random shifts of the torus along (1, -1), for the vorticity equation.
        mean: With `square`, whether predictions of the trained operator are means over the 8 images
            of the input. A prediction then takes eight times as long. The epoch is chosen without
            the mean.
    """

    shift: bool = False
    reflection: bool = False
    square: bool = False
    diagonal: bool = False
    mean: bool = False

    @model_validator(mode="after")
    def _of_one_domain(self) -> Self:
        domains = {
            "the circle": self.shift or self.reflection,
            "the square": self.square,
            "the torus": self.diagonal,
        }
        drawn = [domain for domain, is_drawn in domains.items() if is_drawn]
        if len(drawn) > 1:
            raise ValueError(
                "shift and reflection are for the circle, square is for the square and diagonal "
                f"for the torus: choose one domain, not {' and '.join(drawn)}"
            )
        if self.mean and not self.square:
            raise ValueError("mean is a mean over the symmetries of the square: set square = true")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out keys that are false and that records of earlier versions do not have."""
        table = content(self)
        for name in ("diagonal", "mean"):
            if not table[name]:
                del table[name]
        return table

    @property
    def for_maps(self) -> bool:
        """Whether one is drawn that only the task map allows."""
        return self.shift or self.reflection or self.square

    def build(self) -> Augmentation | None:
        if self.diagonal:
            return DiagonalShifts()
        if self.square:
            return SquareSymmetries(self.mean)
        if self.shift or self.reflection:
            return CircleSymmetries(self.shift, self.reflection)
        return None


Scaling = Literal["none", "scalar", "pointwise"]


class Normalization(Strict):
    """Normalisation of inputs and targets, fitted to the training samples
    (`operators.transforms.Normalizer`).

    Args:
        input, target: "none" is the identity. "scalar" uses one mean and deviation per channel, and
            "pointwise" one per channel and point. On meshes, "pointwise" requires that all samples
            have the same nodes, and uses one per channel and node.
        eps: Number added to pointwise deviations; by default a thousandth of their root mean
            square. The published value is 1e-5. [the quantity's]
    """

    input: Scaling = "none"
    target: Scaling = "none"
    eps: NonNegative | None = None

    @model_validator(mode="after")
    def _of_points(self) -> Self:
        if self.eps is not None and "pointwise" not in (self.input, self.target):
            raise ValueError("eps is for pointwise scaling: set input or target to 'pointwise'")
        return self

    def of(self, pairs: Samples) -> tuple[Normalizer, Normalizer]:
        """Normalisers of the inputs and of the targets.

        Parameters of samples that have a law, such as a viscosity, are normalised by their law.

        Raises SchemaError if a channel is constant, or if the scaling is pointwise and the samples
        share neither points nor nodes.
        """
        step = pairs.single_step
        input = self._of(self.input, step, "a").with_laws(step.input_laws)
        return input, self._of(self.target, step, "u")

    def _of(self, scaling: Scaling, pairs: Samples, which: Literal["a", "u"]) -> Normalizer:
        values = _present(pairs, which)
        if scaling == "pointwise":
            if not _same_nodes(pairs, which):
                raise SchemaError(
                    f"normalization: pointwise needs points or nodes that samples share, those of "
                    f"{pairs.source.get('url')} differ: use scalar"
                )
            x = pairs.x if which == "a" or pairs.y is None else pairs.y
            fit = partial(Normalizer.pointwise, values, x, self.eps, isinstance(pairs.domain, Box))
        elif scaling == "scalar":
            fit = partial(Normalizer.of, values)
        else:
            return Normalizer.identity(pairs.channels["au".index(which)])
        try:
            return fit()
        except ValueError as error:
            key = "input" if which == "a" else "target"
            option = ", or normalization.eps" if scaling == "pointwise" else ""
            raise SchemaError(
                f"normalization.{key}: a channel of the training samples of "
                f"{pairs.source.get('url')} is constant: use none{option}"
            ) from error


def _same_nodes(pairs: Samples, which: Literal["a", "u"]) -> bool:
    """Whether value i belongs to the same point or mesh node in all samples.

    This is false for clouds without cells, whose points have no order.
    """
    if pairs.masked:
        return False
    if pairs.x is not None:
        return True
    meshed = not isinstance(pairs.domain, Cloud) or pairs.domain.cells is not None
    return meshed and (which == "a" or pairs.first().y is None)


def _present(pairs: Samples, which: Literal["a", "u"]) -> Tensor | Iterable[Tensor]:
    """All inputs ("a") or all targets ("u"). Padding of samples with fewer points is removed."""
    if not pairs.masked:
        return pairs.inputs if which == "a" else pairs.targets
    parts = pairs.in_order(64)
    return (getattr(part, which)[part.mask] for part in parts if part.mask is not None)


class InputNoise(NoiseKind):
    """Noise on the inputs or the training targets (`pdegen.sampling.noise`). On the inputs, it is
    fixed for validation and test samples.

    Args:
        on: Values with noise: "inputs", "targets" of training samples, or "both", independently.
            Noise on targets is drawn once for each sample, like that of a measured label.
            Validation and test samples keep targets without noise.
        level: Noise level, or a range [low, high] in which each sample has a random level
            (`pdegen.sampling.noise`). With a range, the operator receives the level in an
            additional input channel, as the constant (level/high)^½. "snr" does not allow a range,
            because no level in decibels stands for zero noise. [dimensionless, dB for "snr"]
        fresh: Whether noise and levels are drawn anew in each training epoch. If not, they are
            drawn once, as in the published code. Noise on targets is always drawn once.
    """

    on: Literal["inputs", "targets", "both"] = "inputs"
    level: Level
    fresh: bool = True

    @field_validator("level", mode="before")
    @classmethod
    def _range(cls, level: Any) -> Any:
        if not isinstance(level, list | tuple):
            if type(level) not in (int, float) or not math.isfinite(level):
                raise ValueError(
                    f"must be a finite number or a range [low, high], got {brief(level)}"
                )
            return level
        ends = cast("Sequence[Any]", level)
        if len(ends) != 2:
            raise ValueError(f"a range of levels must be [low, high], got {list(ends)}")
        if not all(type(end) in (int, float) for end in ends):
            raise ValueError(f"the ends of a range of levels must be numbers, got {list(ends)}")
        Levels(*ends)
        return tuple(map(float, ends))

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not isinstance(self.level, tuple):
            self.check_level(self.level)
        elif self.kind == "snr":
            raise ValueError(
                f"snr takes one level in decibels and no range, got {list(self.level)}"
            )
        if self.on == "targets" and not self.fresh:
            raise ValueError(
                "noise.fresh is for noise on inputs; noise on targets is always drawn once: leave "
                "it out"
            )
        if self.on_targets and isinstance(self.level, tuple):
            raise ValueError(
                f"noise.on = {self.on!r} takes one level, got {list(self.level)}: only "
                "the level of noise on inputs can vary, because the operator gets it as an input"
            )
        if self.on_targets and self.kind == "sensors":
            raise ValueError(
                "sensors sets inputs without a sensor to 0 and is not for targets: use "
                "noise.on = 'inputs', or another kind"
            )
        return self

    @model_serializer(mode="wrap")
    def _in_order(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise in the order of `NoiseKind`. The default of `on` is left out: it is what older
        experiments without this key mean."""
        table = content(self)
        if table.get("on") == "inputs":
            del table["on"]
        return {key: table[key] for key in ("kind", "level") if key in table} | table

    @property
    def on_inputs(self) -> bool:
        """Whether inputs have noise."""
        return self.on != "targets"

    @property
    def on_targets(self) -> bool:
        """Whether the targets of training samples have noise."""
        return self.on != "inputs"

    @property
    def levels(self) -> Levels | None:
        """The range of levels; None for a single level."""
        return Levels(*self.level) if isinstance(self.level, tuple) else None

    def build(self) -> NoiseModel:
        """The noise model for the level, or for the upper end of the range."""
        return self.at(self.level[1] if isinstance(self.level, tuple) else self.level)
