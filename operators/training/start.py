"""Weights that a training starts from: published ones, or those of an earlier training."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from torch import Tensor

from operators.base import Operator
from operators.training.checkpoint import CheckpointError, check_checkpoint
from pdegen.ownership import FileError, read

_OF_CHECKPOINTS = ("operator.", "input.", "target.")  # names of tensors begin with one of these


class StartError(FileError):
    """A weights file is missing, damaged, or for another operator. The message is one line."""


def renamed(operator: Operator, name: str) -> str:
    """Translate the name of a tensor in published weights to its name in this package."""
    for released, local in operator.released_names:
        name = name.replace(released, local)
    return name


def _kind(tensor: Tensor) -> str:
    """Number type of a tensor, for messages."""
    if tensor.is_floating_point():
        return "real numbers"
    return "complex numbers" if tensor.is_complex() else "integers"


def _check(path: Path) -> None:
    """Raise StartError if a checkpoint of a run is damaged."""
    try:
        check_checkpoint(path)
    except CheckpointError as error:
        raise StartError(str(error)) from None


def start_from(operator: Operator, path: Path) -> dict[str, Any]:
    """Load initial weights from a file. Tensors have the published names or those of this package.

    The file must contain exactly the tensors of the operator. A checkpoint of a run also contains
    normalisers, which are not used. Shapes must agree, except for tensors whose shapes depend on
    the numbers of channels. If these numbers differ in the file, such tensors keep their initial
    values. Real tensors may have any precision. All values must be finite.

    Args:
        path: A safetensors file, such as that of Poseidon-T for `scot`, or a checkpoint of a run.

    Returns:
        Entries for the record of a run: "sha256" is the SHA-256 of the file, and "anew" lists the
        tensors that keep their initial values.

    Raises:
        StartError: If the file is missing or does not fit. The operator is then unchanged.

    >>> from safetensors.torch import save_file
    >>> from operators.models.fno import FNO
    >>> model, path = FNO(width=8, modes=4), Path(getfixture("tmp_path")) / "w.safetensors"
    >>> save_file(FNO(width=8, modes=4).state_dict(), path)
    >>> start_from(model, path)["anew"]
    []
    """
    try:
        data = read(path)
        tensors = tensors_of(data)
    except OSError as error:
        raise StartError(f"{path}: {error.strerror or error}") from None
    except FileError as error:
        raise StartError(str(error)) from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise StartError(f"{path} is damaged, or not a safetensors file: {error}") from None
    if all(name.startswith(_OF_CHECKPOINTS) for name in tensors):
        _check(path)
        prefix, *_ = _OF_CHECKPOINTS
        tensors = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    given = {renamed(operator, name): tensor for name, tensor in tensors.items()}
    expected, kind = operator.state_dict(), type(operator).__name__
    if len(given) < len(tensors) or given.keys() != expected.keys():
        name = min(given.keys() ^ expected.keys(), default="one of two names for one tensor")
        problem = "is missing" if name in expected else "is not expected"
        raise StartError(f"{path} does not fit {kind} with these settings: {name} {problem}")
    anew = [name for name in expected if given[name].shape != expected[name].shape]
    for name in anew:
        if not name.startswith(operator.by_channels or ("\0",)):
            got, needed = (tuple(v[name].shape) for v in (given, expected))
            raise StartError(
                f"{path} does not fit {kind} with these settings: {name} has shape {got}, "
                f"expected {needed}"
            )
    taken = {name: given[name] for name in expected if name not in anew}
    for name, tensor in taken.items():
        if _kind(tensor) != (needed := _kind(expected[name])):
            got = str(tensor.dtype).removeprefix("torch.")
            raise StartError(f"{path}: {name} has numbers of type {got}, expected {needed}")
        if not tensor.to(expected[name].dtype).isfinite().all():
            raise StartError(f"{path}: {name} has numbers that are not finite")
    with torch.no_grad():
        for name, tensor in taken.items():
            expected[name].copy_(tensor)
    return {"sha256": hashlib.sha256(data).hexdigest(), "anew": anew}
