"""Words -> objects. The only place where a name in a file becomes a class or a function."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from operators.base import Operator
from operators.galerkin import GalerkinTransformer
from operators.nn.attention import FOURIER, GALERKIN, LINEAR, SOFTMAX, AttentionKind
from operators.norms import RelativeH1, RelativeL2
from operators.soap import SOAP
from operators.train import Augmentation, Loss, MakeOptimizer, adam
from operators.transforms import BurgersSymmetries
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


Model = GalerkinTransformerModel
MODELS: dict[str, type[Model]] = {
    get_args(kind.model_fields["name"].annotation)[0]: kind for kind in (GalerkinTransformerModel,)
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


LossSpec = Annotated[L2Loss | H1Loss, Field(discriminator="name")]


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
    """`operators.transforms.BurgersSymmetries`."""

    shift: bool = False
    reflection: bool = False

    def build(self) -> Augmentation | None:
        if not (self.shift or self.reflection):
            return None
        return BurgersSymmetries(self.shift, self.reflection)
