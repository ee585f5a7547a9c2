"""Neural operators in PyTorch: batch first, channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.api import (
        Batch,
        CheckpointError,
        DataError,
        Operator,
        Samples,
        TrainedModel,
        load_model,
        open_pairs,
        read_pairs,
        register,
        register_loss,
        register_optimizer,
        register_schedule,
        trained_models,
    )

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


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that commands can start without PyTorch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from operators import api

    return getattr(api, name)
