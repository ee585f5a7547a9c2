"""Figures on the terminal and in a history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.measure.history import append


def show(name: str, figures: dict[str, Any]) -> None:
    """Print the figures, and keep them in benchmarks/results/NAME.jsonl with what they ran on."""
    print(json.dumps(figures, indent=2))
    print(append(Path(__file__).parent / "results", name, figures))
