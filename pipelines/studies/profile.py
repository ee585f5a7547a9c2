"""Results of a profile in a folder: the cost of a training step of each operator on one grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from operators.base import Operator
from operators.norms import RelativeL2
from operators.plugins import file_of
from operators.registry import build_operator
from operators.training.identity import key_of
from operators.training.step import is_out_of_memory
from pdegen.schema import SchemaError
from pipelines.config.benchmark import Profile
from pipelines.runs.evaluation import provenance
from pipelines.runs.folder import FolderClaim
from pipelines.studies.cost import held_bytes, step_cost
from pipelines.studies.row import Row
from pipelines.studies.runner import Execution, Study

HOLDING = FolderClaim("profile", "profile.json", "use --overwrite, or --resume to finish it")


@dataclass(frozen=True)
class ProfileRun(Study[str]):
    """A profile whose results are stored in a folder. Each part is the name of an operator."""

    profile: Profile
    folder: Path

    def check(self, device: torch.device) -> None:
        for label, entry in self.profile.operators.items():
            a, _, x = self._functions(device)
            try:
                with torch.no_grad():
                    self._operator(label, device).eval()(a[:1], x)
            except (
                ValueError,
                RuntimeError,
            ) as error:  # for example a grid too coarse for the modes
                if isinstance(error, RuntimeError) and is_out_of_memory(error):
                    raise
                where = f"{label} in profile {self.profile.name}"
                raise SchemaError(f"{where}: model {entry.model.name}: {error}") from error

    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        HOLDING.check(self.folder, resume, overwrite)
        if resume:
            self.check_device(device)
        declared = self.profile.model_dump(mode="json")
        HOLDING.claim(self.folder, declared, resume=resume, overwrite=overwrite)

    def stages(self) -> Sequence[Sequence[str]]:
        return [list(self.profile.operators)]

    def row_path(self, part: str) -> Path:
        return self.folder / "rows" / f"{list(self.profile.operators).index(part)}.json"

    def digest(self, part: str) -> str:
        file = file_of(self.profile.operators[part].model.operator)  # of a user's own operator
        digest = None if file is None else file["sha256"]
        return key_of(operator=part, profile=self.profile.model_dump(mode="json"), file=digest)

    def progress_line(self, part: str, row: Row) -> str:
        return f"{part}: {row.step_seconds:.3g} s"

    def make(self, part: str, how: Execution) -> Row:
        a, u, x = self._functions(how.device)
        operator, loss = self._operator(part, how.device).train(), RelativeL2()
        optimizer = torch.optim.Adam(operator.parameters(), lr=1e-6, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            loss(operator(a, x), u, a).backward()
            optimizer.step()

        row = Row(
            made_from=self.digest(part),
            operator=part,
            parameters=operator.parameter_count,
            provenance=provenance(how.device),
        )
        row.step_held_bytes = held_bytes(step, how.device)
        row.cost = step_cost(step, operator, optimizer, how.device)
        return row

    def _functions(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random functions a and u, and the points x of the circle."""
        torch.manual_seed(0)
        n = self.profile.points
        x = (torch.arange(n, device=device) / n)[:, None]
        a, u = torch.randn(2, self.profile.batch, n, 1, device=device)
        return a, u, x

    def _operator(self, label: str, device: torch.device) -> Operator:
        model = self.profile.operators[label].model.model_dump(mode="json")
        described = {"model": model, "in_channels": 1, "out_channels": 1, "dim": 1}
        return build_operator(described).to(device)
