"""Words -> objects. The only place where a name in a file becomes a class or a function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator
from torch import Tensor

from operators.base import Operator
from operators.data import Samples
from operators.galerkin import GalerkinTransformer
from operators.galerkin2d import GalerkinTransformer2d
from operators.nn.attention import FOURIER, GALERKIN, LINEAR, SOFTMAX, AttentionKind
from operators.norms import RelativeH1, RelativeL2, WeightedH1
from operators.soap import SOAP
from operators.train import Augmentation, Loss, MakeOptimizer, adam
from operators.transforms import BurgersSymmetries, Normalizer, SquareSymmetries
from pdegen.noise import Noise
from pdegen.schema import Count, NonNegative, SchemaError, Strict, near

ATTENTIONS: dict[str, AttentionKind | None] = {
    "galerkin": GALERKIN,
    "fourier": FOURIER,
    "softmax": SOFTMAX,
    "linear": LINEAR,
    "none": None,
}
Rate = Annotated[float, Field(ge=0, lt=1)]


class GalerkinTransformerModel(Strict):
    """`operators.galerkin.GalerkinTransformer`; the defaults are the published Burgers settings."""

    name: Literal["galerkin-transformer"]
    width: Count = 96
    depth: Count = 4
    heads: Count = 1
    attention: Literal["galerkin", "fourier", "softmax", "linear", "none"] = "galerkin"
    normalization: Literal["head", "layer"] = "head"
    feedforward: Count = 192
    modes: Count = 16
    decoder_width: Count = 48
    coordinates: Literal["raw", "periodic", "none"] = "raw"
    dropout: Rate = 0.0
    feedforward_dropout: Rate = 0.0
    decoder_dropout: Rate = 0.0
    attention_dropout: Rate | Literal["published"] = 0.0
    gain: NonNegative = 1e-2
    diagonal: float = 1e-2
    eps: Annotated[float, Field(gt=0)] = 1e-5

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads must divide width = {self.width}, got {self.heads}")
        return self

    def build(self, in_channels: int, out_channels: int) -> Operator:
        settings = self.model_dump(exclude={"name", "attention"})
        return GalerkinTransformer(
            in_channels=in_channels,
            out_channels=out_channels,
            attention=ATTENTIONS[self.attention],
            **settings,
        )


class GalerkinTransformer2dModel(Strict):
    """`operators.galerkin2d.GalerkinTransformer2d`; the defaults are those of Darcy flow."""

    name: Literal["galerkin-transformer-2d"]
    width: Count = 128
    depth: Count = 6
    heads: Count = 4
    attention: Literal["galerkin", "fourier", "softmax", "linear", "none"] = "galerkin"
    normalization: Literal["head", "layer"] = "head"
    feedforward: Count = 256
    latent: Annotated[int, Field(ge=2)] | Literal["output"] = 43
    decoder: Literal["spectral", "pointwise"] = "spectral"
    modes: Count = 12
    decoder_width: Count = 32
    head_width: Count = 128
    activation: Literal["relu", "silu"] = "relu"
    downscaler_dropout: Rate = 0.05
    upscaler_dropout: Rate = 0.0
    dropout: Rate = 0.05
    feedforward_dropout: Rate = 0.1
    decoder_dropout: Rate = 0.0
    head_dropout: Rate = 0.0
    attention_dropout: Rate | Literal["published"] = 0.0
    gain: NonNegative = 1e-2
    diagonal: float = 1e-2
    eps: Annotated[float, Field(gt=0)] = 1e-7

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads must divide width = {self.width}, got {self.heads}")
        return self

    def build(self, in_channels: int, out_channels: int) -> Operator:
        settings = self.model_dump(exclude={"name", "attention"})
        return GalerkinTransformer2d(
            in_channels=in_channels,
            out_channels=out_channels,
            attention=ATTENTIONS[self.attention],
            **settings,
        )


Model = GalerkinTransformerModel | GalerkinTransformer2dModel
ModelSpec = Annotated[Model, Field(discriminator="name")]
MODELS: dict[str, type[Model]] = {
    get_args(kind.model_fields["name"].annotation)[0]: kind for kind in get_args(Model)
}


def parse_model(content: dict[str, Any]) -> Model:
    """A model's declaration from its words.

    Raises:
        SchemaError: On an unknown model or key, or an impossible value.
    """
    name = content.get("name")
    if name not in MODELS:
        raise SchemaError(f"unknown model {name!r}: {near(str(name), list(MODELS))}")
    return MODELS[name].parse(content, f"model {name}")


def build_operator(description: dict[str, Any]) -> Operator:
    """The operator that a checkpoint describes by its declaration and channels."""
    declared = parse_model(description["model"])
    return declared.build(description["in_channels"], description["out_channels"])


class L2Loss(Strict):
    """`operators.norms.RelativeL2`."""

    name: Literal["l2"]

    def build(self) -> Loss:
        return RelativeL2()


class H1Loss(Strict):
    """`operators.norms.RelativeH1`; `periodic = false` is the published behaviour."""

    name: Literal["h1"]
    gamma: NonNegative = 0.1
    periodic: bool = True

    def build(self) -> Loss:
        return RelativeH1(self.gamma, self.periodic)


class WeightedH1Loss(Strict):
    """`operators.norms.WeightedH1`; `published = true` is its published form."""

    name: Literal["weighted-h1"]
    gamma: NonNegative = 0.5
    published: bool = False

    def build(self) -> Loss:
        return WeightedH1(self.gamma, self.published)


LossSpec = Annotated[L2Loss | H1Loss | WeightedH1Loss, Field(discriminator="name")]


class AdamOptimizer(Strict):
    """`operators.train.adam`, with the published cycle of its momentum."""

    name: Literal["adam"]

    def build(self) -> MakeOptimizer:
        return adam

    @property
    def cycle_momentum(self) -> bool:
        return True


class SOAPOptimizer(Strict):
    """`operators.soap.SOAP`, momentum constant."""

    name: Literal["soap"]
    beta1: Rate = 0.95
    beta2: Rate = 0.95
    every: Count = 10

    def build(self) -> MakeOptimizer:
        return lambda parameters, lr: SOAP(
            parameters, lr=lr, betas=(self.beta1, self.beta2), every=self.every
        )

    @property
    def cycle_momentum(self) -> bool:
        return False


OptimizerSpec = Annotated[AdamOptimizer | SOAPOptimizer, Field(discriminator="name")]


class Symmetries(Strict):
    """`operators.transforms.BurgersSymmetries`, or `SquareSymmetries` where `square`."""

    shift: bool = False
    reflection: bool = False
    square: bool = False

    @model_validator(mode="after")
    def _of_one_domain(self) -> Self:
        if self.square and (self.shift or self.reflection):
            raise ValueError("square excludes shift and reflection, which are for the circle")
        return self

    def build(self) -> Augmentation | None:
        if self.square:
            return SquareSymmetries()
        if self.shift or self.reflection:
            return BurgersSymmetries(self.shift, self.reflection)
        return None


Scaling = Literal["none", "scalar", "pointwise"]


class Normalization(Strict):
    """`operators.transforms.Normalizer` of inputs and of targets, from the training samples.

    Args:
        input, target: One mean and deviation for each channel ("scalar"), or for each point too.
        eps: Added to pointwise deviations; the default is a thousandth of their mean square root.
            1e-5 is the published value.
    """

    input: Scaling = "none"
    target: Scaling = "none"
    eps: NonNegative | None = None

    def of(self, pairs: Samples) -> tuple[Normalizer, Normalizer]:
        """The normalisers of inputs and of targets."""
        channels = pairs.channels
        return (
            self._of(self.input, pairs.inputs, pairs.x, channels[0]),
            self._of(self.target, pairs.targets, pairs.target_points, channels[1]),
        )

    def _of(
        self, scaling: Scaling, values: Tensor | Iterable[Tensor], x: Tensor, channels: int
    ) -> Normalizer:
        if scaling == "pointwise":
            return Normalizer.pointwise(values, x, self.eps)
        return Normalizer.of(values) if scaling == "scalar" else Normalizer.identity(channels)


class InputNoise(Noise):
    """Noise on the inputs, `pdegen.noise`. Validation and test have it frozen.

    Args:
        fresh: Draw it anew in every epoch of training, or once, as published.
    """

    fresh: bool = True
