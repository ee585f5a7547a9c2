"""Generates and verifies datasets, trains and evaluates operators, and writes reports. Uses the
packages pdegen and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.api import run, train

__all__ = ["run", "train"]


def __getattr__(name: str) -> Any:
    """Import a public function when it is first accessed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines import api

    return getattr(api, name)
