"""Registries of operators, optimisers, schedules and losses by name.

Operators are also constructed here from the descriptions in checkpoints. The optimisers, schedules
and losses of the project are registered in `operators.training`.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operators.base import Operator
from operators.models.cno import CNO
from operators.models.deeponet import DeepONet, PODDeepONet, ShiftDeepONet
from operators.models.f_fno import FFNO
from operators.models.factformer import FactFormer
from operators.models.flare import FLARE
from operators.models.fno import FNO, UFNO
from operators.models.galerkin import GalerkinTransformer
from operators.models.galerkin2d import GalerkinTransformer2d
from operators.models.gaot import GAOT
from operators.models.geofno import GeoFNO
from operators.models.gnot import GNOT
from operators.models.htnet import HTNet
from operators.models.ipot import IPOT
from operators.models.lno import LNO
from operators.models.lrsa import LRSA
from operators.models.lsm import LSM
from operators.models.mwt import MWT
from operators.models.neuralop import NeuralOperatorModel
from operators.models.oformer import OFormer
from operators.models.ono import ONO
from operators.models.pit import PiT, PiT2025
from operators.models.scot import ScOT
from operators.models.transformer import Transformer
from operators.models.transolver import LinearNO, Transolver, TransolverPlus
from operators.models.unet import PlainUNet
from operators.models.upt import UPT
from operators.models.xd import XD
from operators.nn.attention import (
    EFFICIENT,
    FAVOR,
    FOURIER,
    GALERKIN,
    LINEAR,
    NYSTROM,
    RFA,
    SOFTMAX,
    AttentionKind,
    through,
)
from operators.plugins import Registry

Words = Mapping[str, Mapping[str, object]]

ATTENTIONS: dict[str, AttentionKind | None] = {
    "galerkin": GALERKIN,
    "fourier": FOURIER,
    "softmax": SOFTMAX,
    "linear": LINEAR,
    "efficient": EFFICIENT,
    "rfa": RFA,
    "favor": FAVOR,
    "nystrom": NYSTROM,
    "nystrom-32": through(32),
    "none": None,
}
DEEPEST, LARGEST = 1000, 2**24  # largest depth, and largest value of other settings


@dataclass(frozen=True)
class Registered:
    """A registered operator class.

    Args:
        operator: The class.
        words: For each argument that files cannot hold, such as an attention kind: a mapping from
            the word in files, such as "galerkin", to the object.
    """

    operator: type[Operator]
    words: Words

    @property
    def registered(self) -> type[Operator]:
        """The class."""
        return self.operator

    def build(
        self, settings: Mapping[str, Any], in_channels: int, out_channels: int, dim: int | None
    ) -> Operator:
        """Construct an operator.

        Args:
            settings: Arguments of the constructor. Arguments that are objects are given by words.
            dim: Number of space dimensions; None if the checkpoint does not state it.

        Raises:
            ValueError, TypeError: If the settings are impossible or do not support `dim`.
        """
        parameters = inspect.signature(self.operator).parameters
        if unknown := settings.keys() - parameters.keys():
            raise ValueError(f"{self.operator.__name__} has no argument {min(unknown)}")
        arguments = {name: self._argument(name, value) for name, value in settings.items()}
        if dim is not None and "dim" in parameters:
            arguments["dim"] = dim
        operator = self.operator(in_channels=in_channels, out_channels=out_channels, **arguments)
        if dim not in (None, operator.dim):
            raise ValueError(
                f"{self.operator.__name__} supports domains of dimension {operator.dim}, the data "
                f"have dimension {dim}"
            )
        return operator

    def _argument(self, name: str, value: Any) -> Any:
        """The constructor argument for a setting."""
        if name in self.words:
            if value not in self.words[name]:
                raise ValueError(f"unknown {name} {value!r}: known: {', '.join(self.words[name])}")
            return self.words[name][value]
        check_number(name, value)
        return value


def check_number(name: str, value: object) -> None:
    """Raise ValueError if a number is not finite or is too large for a setting.

    >>> check_number("depth", 10**6)
    Traceback (most recent call last):
    ValueError: depth must be at most 1,000, got 1000000
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    most = DEEPEST if name.endswith("depth") else LARGEST
    if isinstance(value, int) and not isinstance(value, bool) and value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value}")


OPERATORS = Registry("operator", lambda operator: Registered(operator, {}))
OPTIMIZERS = Registry[type](
    "optimizer", lambda optimizer: optimizer, "operators.training.optimizers"
)
SCHEDULES = Registry[type]("schedule", lambda schedule: schedule, "operators.training.schedules")
LOSSES = Registry[type]("loss", lambda loss: loss, "operators.training.losses")
# what users can extend, by kind; `pdegen.plugins` finds here what a user's file registers
REGISTRIES: dict[str, Registry[Any]] = {
    registry.kind: registry for registry in (OPERATORS, OPTIMIZERS, SCHEDULES, LOSSES)
}


def register(name: str, operator: type[Operator], words: Words | None = None) -> None:
    """Register an operator. This must happen before an experiment or checkpoint with it is read.

    Args:
        name: Name in experiments and checkpoints.
        operator: The class.
        words: For each constructor argument that is an object: a mapping from the words that stand
            for it in experiments and checkpoints to the objects.

    Raises:
        ValueError: If the name is already registered.

    >>> register("fno", FNO)
    Traceback (most recent call last):
    ValueError: an operator named 'fno' is already registered
    """
    OPERATORS.add(name, Registered(operator, words or {}))


register("galerkin-transformer", GalerkinTransformer, {"attention": ATTENTIONS})
register("galerkin-transformer-2d", GalerkinTransformer2d, {"attention": ATTENTIONS})
register("transformer", Transformer)
register("fno", FNO)
register("f-fno", FFNO)
register("u-fno", UFNO)
register("unet", PlainUNet)
register("deeponet", DeepONet)
register("shift-deeponet", ShiftDeepONet)
register("pod-deeponet", PODDeepONet)
register("ono", ONO)
register("pit", PiT)
register("pit-2025", PiT2025)
register("transolver", Transolver)
register("lrsa", LRSA)
register("mwt", MWT)
register("lno", LNO)
register("geo-fno", GeoFNO)
register("gnot", GNOT)
register("gaot", GAOT)
register("upt", UPT)
register("cno", CNO)
register("linear-no", LinearNO)
register("ipot", IPOT)
register("flare", FLARE)
register("lsm", LSM)
register("transolver-plus", TransolverPlus)
register("oformer", OFormer)
register("ht-net", HTNet)
register("factformer", FactFormer)
register("scot", ScOT)
register("xd", XD)
register("neuraloperator", NeuralOperatorModel)


def build_operator(description: Mapping[str, Any]) -> Operator:
    """Construct the operator that a checkpoint describes.

    Args:
        description: Entries "in_channels", "out_channels", "dim" and "model". The entry "model"
            contains the name and the settings.

    Raises:
        KeyError, ValueError, TypeError: If the description is incomplete or impossible.

    >>> model = {"name": "fno", "width": 8, "modes": 4}
    >>> described = {"model": model, "in_channels": 1, "out_channels": 2, "dim": 1}
    >>> build_operator(described).out_channels
    2
    """
    settings = dict(description["model"])
    name = settings.pop("name")
    if name not in OPERATORS:
        raise ValueError(f"unknown model {name!r}: known: {', '.join(OPERATORS.known)}")
    channels = description["in_channels"], description["out_channels"]
    return OPERATORS[name].build(settings, *channels, description.get("dim"))


def register_optimizer(name: str, optimizer: type) -> None:
    """Register an optimiser under its name in experiments, `training.optimizer.name`.

    The arguments of its constructor are its keys.

    Args:
        name: Name in experiments.
        optimizer: A class whose objects are called with (parameters, learning rate) and return a
            `torch.optim.Optimizer`; or a subclass of `torch.optim.Optimizer`. The arguments
            `params` and `lr` of such a subclass are no keys. If the class attribute
            `cycles_momentum` is true, the schedule 1cycle also sets the momentum.

    Raises:
        ValueError: If the name is already registered.
    """
    OPTIMIZERS.add(name, optimizer)


def register_schedule(name: str, schedule: type) -> None:
    """Register a learning rate schedule under its name in experiments, `training.schedule.name`.

    Args:
        name: Name in experiments.
        schedule: A class whose objects are called with (peak rate, step, steps, epochs) and return
            the rate of a step (`operators.training.schedules`). The arguments of the
            constructor are its keys.

    Raises:
        ValueError: If the name is already registered.
    """
    SCHEDULES.add(name, schedule)


def register_loss(name: str, loss: type) -> None:
    """Register a loss under its name in experiments, `training.loss.name`.

    Args:
        name: Name in experiments.
        loss: A class whose objects are called with (prediction, target, input) and return a scalar.
            On meshes and clouds they get quadrature weights as a fourth argument. If the class has
            a method `check`, it is called with the domain and raises ValueError if the loss does
            not suit it. The arguments of the constructor are its keys.

    Raises:
        ValueError: If the name is already registered.
    """
    LOSSES.add(name, loss)
