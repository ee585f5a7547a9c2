"""The models of the package neuraloperator, wrapped as operators of this library.

References: J. Kossaifi et al., A library for learning neural operators, arXiv:2412.10354; the
package is github.com/neuraloperator/neuraloperator.
"""

import inspect
import json
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Mask, Operator, Points, Preset, Targets, check_input

SET_BY_DATA = ("in_channels", "out_channels")  # not by settings
_MOST_LAYERS = 1000
PER_AXIS = ("n_modes", "max_n_modes")  # arguments with one number for each axis
DEFAULT_FORMS = {"TFNO": "Tucker"}  # factorisation of weights by default, where not "Dense"
PER_LAYER = ("uno_n_modes", "uno_scalings")  # arguments with one number for each layer and axis


def library() -> ModuleType:
    """Import and return the module `neuralop.models`.

    Raises:
        ValueError: If the package, or one that it needs, is missing.
    """
    try:
        # its dependencies contain invalid escapes, which warn when first compiled
        with warnings.catch_warnings(action="ignore"):
            return import_module("neuralop.models")
    except ImportError as error:
        raise ValueError(
            f"this operator needs the package neuraloperator ({error}): "
            "pip install 'pdegen-operators[neuraloperator]'"
        ) from error


def arguments(model: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Parameters of the first constructor in the class hierarchy that has `in_channels`."""
    for kind in model.__mro__:
        parameters = inspect.signature(kind.__init__).parameters
        if "in_channels" in parameters:
            return dict(list(parameters.items())[1:])
    return {}


def is_grid_model(model: Any) -> bool:
    """Whether a class maps (batch, in_channels, *grid) to (batch, out_channels, *grid)."""
    if not (isinstance(model, type) and issubclass(model, nn.Module)):
        return False
    inputs = list(inspect.signature(model.forward).parameters.values())[1:]
    needed = [p for p in inputs if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return all(name in arguments(model) for name in SET_BY_DATA) and len(needed) == 1


def per_axis(name: str, value: Any, dim: int) -> tuple[Any, ...]:
    """A tuple with one number for each axis, given a number or a list of `dim` numbers."""
    values = tuple(value) if isinstance(value, list) else (value,) * dim
    if len(values) != dim:
        raise ValueError(f"{name} needs one number for each of {dim} axes, got {value}")
    return values


def parsed(settings: str, model: type[nn.Module], dim: int) -> dict[str, Any]:
    """Read the arguments of the constructor of a model from a JSON object.

    Args:
        settings: The JSON object, as text.
        model: Class of the package.
        dim: Number of axes.

    Raises:
        ValueError: If the text is not a JSON object, or a name in it is not an argument.
    """
    try:
        content = json.loads(settings)
    except json.JSONDecodeError as error:
        raise ValueError(f"settings must be JSON ({error}), got {settings!r}") from error
    if not isinstance(content, dict):
        raise ValueError(f"settings must be a JSON object, got {settings!r}")
    allowed = [
        name
        for name, parameter in arguments(model).items()
        # JSON cannot state functions; `empty`, the mark of no default, is itself callable
        if name not in SET_BY_DATA
        and (parameter.default is parameter.empty or not callable(parameter.default))
    ]
    if unknown := sorted(set(content) - set(allowed)):
        raise ValueError(
            f"unknown settings of {model.__name__}: {', '.join(unknown)}; "
            f"allowed are {', '.join(allowed)}"
        )
    layers = content.get("n_layers", 1)
    if isinstance(layers, int) and layers > _MOST_LAYERS:
        raise ValueError(f"n_layers must be at most {_MOST_LAYERS:,}, got {layers}")
    if "factorization" in arguments(model):
        form = str(content.get("factorization", DEFAULT_FORMS.get(model.__name__)) or "Dense")
        content["factorization"] = form if form.lower().startswith("complex") else f"Complex{form}"
    for name in content:
        if name in PER_AXIS and content[name] is not None:
            content[name] = per_axis(name, content[name], dim)
        elif name in PER_LAYER and isinstance(content[name], list):
            content[name] = [list(per_axis(name, value, dim)) for value in content[name]]
    return content


def without_metadata(
    module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: dict[str, Any]
) -> None:
    """Remove `_metadata`, which the package adds to the state dict and which is not a tensor."""
    state.pop("_metadata", None)


class NeuralOperatorModel(Operator):
    """A model a(x) -> u(x) of the package neuraloperator, chosen by the name of its class.

    Only models that map functions on a grid to functions on the same grid are available: FNO, TFNO
    and UNO, and also SFNO and LocalNO if torch_harmonics is installed. The wrapper was written for
    version 2.0.0 of the package.

    If `positional_embedding` in the settings is "grid", these models append the coordinates j/n to
    the input, whatever the points x are. If it is null, they append no coordinates, and FNO then
    commutes with shifts of a periodic grid. The output is at the points x only. The package
    computes spectral convolutions in single precision, even if the weights are in double precision.
    Complex weights are stored as pairs of real numbers ("ComplexDense", "ComplexTucker", ... in the
    package). A conversion of the model to another dtype thus loses no imaginary part. torch.compile
    does not compile these models.

    The default is FNO_Small2d of the package; in two dimensions it has 671,113 parameters.

    Args:
        model: Name of a class in neuralop.models.
        settings: Further arguments of that class, as a JSON object. Where the class needs a number
            for each axis (n_modes, max_n_modes, and the entries of uno_n_modes and uno_scalings),
            one number stands for all axes. Arguments that are functions or modules
            (non_linearity, conv_module) keep their defaults.
    """

    dims = (1, 2, 3)
    package: ClassVar[str] = "neuralop"
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 671_113, "neuraloperator, FNO_Small2d of config/models.py", dim=2)
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        model: str = "FNO",
        settings: str = '{"n_modes": 16, "hidden_channels": 24}',
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        models = {name: kind for name, kind in vars(library()).items() if is_grid_model(kind)}
        if model not in models:
            raise ValueError(f"model must be one of {', '.join(sorted(models))}, got {model!r}")
        content = parsed(settings, models[model], dim)
        try:
            with redirect_stdout(None):  # UNO prints its skip connections
                self.model = models[model](
                    in_channels=in_channels, out_channels=out_channels, **content
                )
        except Exception as error:  # the package checks little, and raises errors of any kind
            raise ValueError(
                f"{model} of neuraloperator refuses {settings}: {type(error).__name__}: {error}"
            ) from error
        self.register_state_dict_post_hook(without_metadata)

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        evaluated: Any = self._evaluated
        if torch.compiler.is_compiling():
            # tracing would enter the search of the package for an order of contraction
            evaluated = torch.compiler.disable(evaluated)
        return evaluated(a)

    def _evaluated(self, a: Function) -> Float[Tensor, "batch *grid c_out"]:
        return self.model(a.movedim(-1, 1)).movedim(1, -1)
