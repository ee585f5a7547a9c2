"""The public functions of the package: read pairs, load a trained model, predict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from operators.base import Operator
from operators.data import Batch, DataError, Samples, open_pairs, read_pairs
from operators.posterior import FlowPosterior
from operators.registry import (
    build_operator,
    register,
    register_loss,
    register_optimizer,
    register_schedule,
)
from operators.trained import trained_models
from operators.training.checkpoint import (
    CheckpointError,
    Grids,
    checkpoint_file,
    load_checkpoint,
)
from operators.training.step import AS_WRITTEN
from operators.transforms import Predictor
from pdegen.domains import Box
from pdegen.plugins import load_plugin

__all__ = [
    "Batch",
    "CheckpointError",
    "DataError",
    "Operator",
    "Samples",
    "TrainedModel",
    "load_model",
    "open_pairs",
    "read_pairs",
    "register",
    "register_loss",
    "register_optimizer",
    "register_schedule",
    "trained_models",
]

_POINTS = 2**18  # points predicted at a time, which bounds the memory on fine grids
_Values = TypeVar("_Values", Tensor, np.ndarray)


@dataclass(frozen=True)
class TrainedModel:
    """A trained operator with its normalisers. Inputs and outputs are physical values."""

    predictor: Predictor
    description: Mapping[str, Any]

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.predictor.parameters()).device

    def to(self, device: torch.device | str) -> TrainedModel:
        """The model after moving its weights to a device."""
        return replace(self, predictor=self.predictor.to(device))

    def points(self, *n: int) -> Tensor:
        """Positions of the points of the grid on which the model was trained.

        Args:
            n: Number of points along each axis; by default that of the training. Other numbers give
                the grid of the same kind on the same box. One number holds for all axes.

        Returns:
            Positions, shape (*grid, dim).

        Raises:
            ValueError: If the checkpoint records no grid, or if `n` fits no grid of its kind.

        Example:
            >>> load_model("burgers-gt-512-best").points(4).flatten()
            tensor([0.0000, 0.2500, 0.5000, 0.7500])
        """
        grids = self.grids
        return positions(grids.on(n) if n else grids.x)

    @property
    def grids(self) -> Grids:
        """The grids of the training. Raises ValueError if the checkpoint records none."""
        recorded = self.description.get("grids")
        if recorded is None:
            raise ValueError(
                "the checkpoint records no grid, because its points are those of meshes or because "
                "an earlier version wrote it: give the positions x of the points"
            )
        return Grids.described(recorded)

    def predict(
        self, a: _Values, x: Any = None, y: Any = None, mask: Any = None, weight: Any = None,
        *, deviation: bool = False,
    ) -> _Values:  # fmt: skip
        """Predictions u = G(a), computed in float32.

        Args:
            a: Values of the inputs, shape (batch, *grid, c_in); a tensor or a NumPy array.
            x: Positions of the points, shape (*grid, dim), or (batch, *grid, dim) if they differ by
                sample. By default, x and y are those of the training (`points`).
            y: Positions of the output points, shape (*target_grid, dim), or
                (batch, *target_grid, dim) if x differs by sample; by default x.
            mask: False at padding, True elsewhere, shape (batch, *grid); by default no padding.
            weight: Quadrature weights of the points, shape (*grid) or (batch, *grid); by default
                equal weights. Operators without quadrature ignore the weights.
            deviation: Whether to return the standard deviation of u given a in place of its mean,
                by a model that was trained by the loss gaussian.

        Returns:
            Values of u, shape (batch, *target_grid, c_out); an array if `a` is an array, otherwise
            a tensor.

        Raises:
            ValueError: If the shapes do not fit the operator, if there are no samples, or if the
                model states no deviation.

        Example:
            >>> import torch
            >>> from operators.models.fno import FNO
            >>> from operators.transforms import Normalizer
            >>> identity = Normalizer.identity(1)
            >>> model = TrainedModel(Predictor(FNO(modes=4), identity, identity).eval(), {})
            >>> x = torch.arange(16)[:, None] / 16
            >>> model.predict(np.ones((3, 16, 1)), x).shape
            (3, 16, 1)
        """
        if deviation and not self.predictor.gaussian:
            raise ValueError("a deviation needs a model that was trained by the loss gaussian")
        values = _tensor("a", a)
        if values.ndim < 3:
            raise ValueError(
                f"a must have the shape (batch, *grid, channels), got {tuple(values.shape)}"
            )
        if not len(values):
            raise ValueError(
                f"predict needs at least one sample, got a of shape {tuple(values.shape)}"
            )
        if x is None:
            x, y = self._points_for(values, y)
        points = _tensor("x", x).to(self.device).float()
        targets = None if y is None else _tensor("y", y).to(self.device).float()
        masks = None if mask is None else _tensor("mask", mask).to(self.device).bool()
        weights = None if weight is None else _tensor("weight", weight).to(self.device).float()
        by_sample = points.ndim == values.ndim
        size = min(50, max(1, _POINTS // max(1, math.prod(values.shape[1:-1]))))
        parts = []
        for rows in (slice(k, k + size) for k in range(0, len(values), size)):
            part_x, part_y = (
                v[rows] if by_sample and v is not None else v for v in (points, targets)
            )
            part_mask = () if masks is None else (masks[rows],)
            part_weight = weights
            if weights is not None and weights.ndim == values.ndim - 1:  # weights by sample
                part_weight = weights[rows]
            with torch.no_grad(), AS_WRITTEN.products():
                part = values[rows].to(self.device, torch.float32)
                u = self.predictor(
                    part, part_x, part_y, *part_mask, weight=part_weight, deviation=deviation
                )
                parts.append(u[..., u.shape[-1] // 2 :] if deviation else u)
        u: Any = torch.cat(parts)
        return u.cpu().numpy() if isinstance(a, np.ndarray) else u.to(values.device)

    def draw(
        self,
        a: _Values,
        members: int | None = None,
        seed: int = 0,
        samples: Sequence[int] | None = None,
        x: Any = None,
        y: Any = None,
    ) -> _Values:
        """Draws of the posterior of u given a, by a model that was trained by the loss flow.

        Member k of sample i is a function of (seed, i, k) and its input, whatever the batch and
        the number of members. The prediction is the mean of draws whose random numbers are those of
        i = 0.

        Args:
            a, x, y: See `predict`; all samples share the points.
            members: Number of draws of each sample; by default that of a prediction.
            seed: Seed of the draws.
            samples: Number i of each sample; by default 0, 1, 2, ...

        Returns:
            Draws, shape (members, batch, *target_grid, c_out).

        Raises:
            ValueError: If the model has another loss, or the shapes do not fit.
        """
        if not isinstance(self.predictor, FlowPosterior):
            raise ValueError("draws need a model that was trained by the loss flow")
        values = _tensor("a", a).to(self.device, torch.float32)
        if x is None:
            x, y = self._points_for(values, y)
        points, targets = (
            None if v is None else _tensor("x", v).to(self.device).float() for v in (x, y)
        )
        numbers = range(len(values)) if samples is None else samples
        count = self.predictor.members if members is None else members
        with AS_WRITTEN.products():
            u: Any = self.predictor.draw(values, points, targets, numbers, count, seed)
        return u.cpu().numpy() if isinstance(a, np.ndarray) else u

    def _points_for(self, values: Tensor, y: Any) -> tuple[Tensor, Any]:
        """The points x and y of the training. Raises ValueError if `values` has other points."""
        grids, shape = self.grids, tuple(values.shape[1:-1])
        if shape != grids.x.shape:
            by = ", ".join(map(str, shape))
            raise ValueError(
                f"a has {by_axes(shape)} points, the training had {by_axes(grids.x.shape)}: "
                f"give their positions x, which are model.points({by}) on the same kind of grid"
            )
        return positions(grids.x), positions(grids.y) if y is None and grids.y is not None else y


def positions(box: Box) -> Tensor:
    """Positions of the points of a box in float32, shape (*grid, dim)."""
    return torch.as_tensor(box.points.astype(np.float32))


def _tensor(name: str, values: Any) -> Tensor:
    """An argument as a tensor. Raises ValueError if it is no array of real numbers."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if tensor.is_complex():
        raise ValueError(f"{name} must be real, got {tensor.dtype}")
    return tensor


def by_axes(shape: tuple[int, ...]) -> str:
    """Numbers of points along each axis, for messages."""
    return " x ".join(map(str, shape))


def load_model(
    checkpoint: str | PathLike[str],
    device: torch.device | str = "cpu",
    *,
    plugin: str | PathLike[str] | None = None,
) -> TrainedModel:
    """Load a trained model. Loading never executes code from the file.

    Args:
        checkpoint: A safetensors file of a run, the folder of an exported model, or a name of
            `trained_models`.
        device: Device of the model.
        plugin: Python file to execute, which registers the operator, like the option --plugin of
            the commands.

    Raises:
        CheckpointError: If the file is missing, damaged, not a checkpoint, or does not fit its
            description. Also if its operator is of a user's file, and this file is not loaded.
        SchemaError: If the plugin cannot be read, raises an error, or registers nothing.

    Example:
        >>> model = load_model("burgers-gt-512-best")
        >>> x = torch.arange(64)[:, None] / 64
        >>> model.predict(torch.sin(2 * torch.pi * x)[None], x).shape
        torch.Size([1, 64, 1])
    """
    if plugin is not None:
        load_plugin(fspath(plugin))
    predictor, description = load_checkpoint(
        checkpoint_file(Path(fspath(checkpoint))), build_operator
    )
    return TrainedModel(predictor, description).to(device)
