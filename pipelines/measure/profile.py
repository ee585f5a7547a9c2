"""What training steps of operators cost on one grid: a table of seconds, memory and operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from operators.base import Operator
from operators.norms import RelativeL2
from operators.training.memory import is_out_of_memory
from pdegen.schema import SchemaError
from pipelines.declared.models import build_operator
from pipelines.declared.profile import Profile, Profiled
from pipelines.measure.cost import Cost, step_cost
from pipelines.runs.folder import RunError, check_folder


@dataclass(frozen=True)
class Profiling:
    """The measured costs of one operator."""

    parameters: int
    cost: Cost


def check_place(folder: Path, overwrite: bool) -> None:
    """Raise RunError where a folder is in the way of a profile, or holds one not to be replaced."""
    check_folder(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / "table.csv").exists() or (folder / "benchmark.json").exists():
        raise RunError(f"{folder} exists and is no profile")
    if not overwrite:
        raise RunError(f"{folder} holds a profile: use --overwrite")


def measure(
    profile: Profile, device: torch.device, progress: Callable[[str, int, int], None]
) -> dict[str, Profiling]:
    """The cost of a step of each operator, one after another.

    Raises:
        SchemaError: If an operator cannot act on the functions; before anything is measured.
    """
    torch.manual_seed(0)
    x = (torch.arange(profile.points, device=device) / profile.points)[:, None]
    a, u = torch.randn(2, profile.batch, profile.points, 1, device=device)
    for label, entry in profile.operators.items():
        try:
            with torch.no_grad():
                _operator(entry, device).eval()(a[:1], x)
        except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
            if isinstance(error, RuntimeError) and is_out_of_memory(error):
                raise
            where = f"{label} in profile {profile.name}"
            raise SchemaError(f"{where}: model {entry.model.name}: {error}") from error
    loss, found = RelativeL2(), {}
    for label, entry in profile.operators.items():
        operator = _operator(entry, device).train()
        optimizer = torch.optim.Adam(operator.parameters(), lr=1e-6, fused=True)

        def step(model: Operator = operator, adam: torch.optim.Adam = optimizer) -> None:
            adam.zero_grad()
            loss(model(a, x), u, a).backward()
            adam.step()

        cost = step_cost(step, operator, optimizer, device)
        found[label] = Profiling(operator.parameter_count, cost)
        progress(f"{label}: {cost.seconds:.3g} s", len(found), len(profile.operators))
        del operator, optimizer, step
    return found


def _operator(entry: Profiled, device: torch.device) -> Operator:
    model = entry.model.model_dump(mode="json")
    described = {"model": model, "in_channels": 1, "out_channels": 1, "dim": 1}
    return build_operator(described).to(device)
