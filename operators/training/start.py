"""Weights to start a training from, in a safetensors file. Loading never executes code."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from torch import Tensor

from operators.base import Operator
from operators.training.files import FileError, read


class StartError(FileError):
    """A file of weights that is absent, damaged, or of another operator; one line."""


def renamed(operator: Operator, name: str) -> str:
    """What a tensor of published weights is called here."""
    for released, here in operator.released_names:
        name = name.replace(released, here)
    return name


def _kind(tensor: Tensor) -> str:
    if tensor.is_floating_point():
        return "real numbers"
    return "complex numbers" if tensor.is_complex() else "integers"


def start_from(operator: Operator, path: Path) -> dict[str, Any]:
    """Take over the weights of a file: published ones, or those that `state_dict` names.

    Tensors that depend on the channels keep their initial numbers where the file has other
    channels. All others must be there, with their shapes, and nothing else. Finite real numbers
    of any precision stand for real ones.

    Args:
        path: A safetensors file, such as that of Poseidon-T for `scot`.

    Returns:
        What a run records: "sha256" of the file, and the names that start "anew".

    Raises:
        StartError: If there is no such file, or it does not fit; the operator is unchanged.

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
        raise StartError(f"{path} is damaged, or no safetensors file: {error}") from None
    given = {renamed(operator, name): tensor for name, tensor in tensors.items()}
    expected, kind = operator.state_dict(), type(operator).__name__
    if len(given) < len(tensors) or given.keys() != expected.keys():
        name = min(given.keys() ^ expected.keys(), default="one of two names for one tensor")
        what = "is missing" if name in expected else "is not expected"
        raise StartError(f"{path} does not fit {kind} with these settings: {name} {what}")
    anew = [name for name in expected if given[name].shape != expected[name].shape]
    for name in anew:
        if not name.startswith(operator.by_channels or ("\0",)):
            got, wanted = (tuple(v[name].shape) for v in (given, expected))
            raise StartError(
                f"{path} does not fit {kind} with these settings: {name} has shape {got}, "
                f"expected {wanted}"
            )
    taken = {name: given[name] for name in expected if name not in anew}
    for name, tensor in taken.items():
        if _kind(tensor) != (kind_here := _kind(expected[name])):
            got = str(tensor.dtype).removeprefix("torch.")
            raise StartError(f"{path}: {name} has numbers of type {got}, expected {kind_here}")
        if not tensor.to(expected[name].dtype).isfinite().all():
            raise StartError(f"{path}: {name} has numbers that are not finite")
    with torch.no_grad():
        for name, tensor in taken.items():
            expected[name].copy_(tensor)
    return {"sha256": hashlib.sha256(data).hexdigest(), "anew": anew}
