"""A trained predictor in one file: weights and normalisers as safetensors, the rest as JSON in
its header. Nothing in it can execute code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from operators.base import Operator
from operators.data import Samples
from operators.transforms import Normalizer, Predictor

_KEY = "operators"
FORMAT_VERSION = 1


class CheckpointError(ValueError):
    """A checkpoint that is absent, damaged, or does not fit; one line."""


def save_checkpoint(path: Path, predictor: Predictor, description: dict[str, Any]) -> None:
    """Write the predictor, in one atomic step.

    Args:
        path: The file, by custom *.safetensors.
        predictor: What to save.
        description: "operator": the words that build the operator; and all that a reader should
            know (data, settings, epoch). Must be JSON.
    """
    operator = predictor.operator
    header = {
        **description,
        "format_version": FORMAT_VERSION,
        "channels": [operator.in_channels, operator.out_channels],
        "dim": operator.dim,
        "vanishes": predictor.vanishes,
    }
    tensors = {k: v.detach().contiguous() for k, v in predictor.state_dict().items()}
    partial = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, partial, metadata={_KEY: json.dumps(header)})
    os.replace(partial, path)


def load_checkpoint(
    path: Path, build: Callable[[dict[str, Any]], Operator]
) -> tuple[Predictor, dict[str, Any]]:
    """Read a predictor in evaluation mode, and its description.

    Args:
        path: The file.
        build: Makes the operator from the description's "operator".

    Raises:
        CheckpointError: If the file is absent, no checkpoint, or does not fit its description.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        if header["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {header['format_version']}, "
                f"this version reads {FORMAT_VERSION}"
            )
        operator = build(header["operator"])
        input, target = (Normalizer.from_state(tensors, name) for name in ("input", "target"))
        vanishes = header.get("vanishes", False)
    except (SafetensorError, KeyError, json.JSONDecodeError, TypeError, OSError) as error:
        raise CheckpointError(f"{path} is not a checkpoint of this project: {error}") from None
    predictor = Predictor(operator, input, target, vanishes)
    try:
        predictor.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit its description: {error}") from None
    return predictor.eval(), header


def check_fit(predictor: Predictor, pairs: Samples) -> None:
    """Raise CheckpointError where the data have other channels or dimension than the operator."""
    operator = predictor.operator
    expected = (operator.in_channels, operator.out_channels, operator.dim)
    got = (*pairs.channels, pairs.x.shape[-1])
    if expected != got:
        raise CheckpointError(
            "the operator has input channels, output channels, dimension "
            f"{expected}, the data {got}"
        )


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a training state of tensors and plain values, in one atomic step."""
    partial = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, partial)
    os.replace(partial, path)


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a training state; only tensors and plain values are unpickled."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many kinds on damaged files
        raise CheckpointError(f"{path}: cannot read the training state: {error}") from error
