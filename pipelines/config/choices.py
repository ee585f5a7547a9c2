"""The tables `optimizer`, `schedule` and `loss` of a training.

Their keys are the arguments of the constructors of registered classes.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Self, TypeVar

import torch
from pydantic import model_validator
from torch import nn

import operators.training.losses  # noqa: F401 - registers losses
from operators.registry import LOSSES, OPTIMIZERS, SCHEDULES, check_number
from operators.training.optimizers import MakeOptimizer, Schedule
from operators.training.step import Loss
from pipelines.config.declared import Declared, Tables, declared

_T = TypeVar("_T", bound="Choice")
_SMALLEST, _LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


class Choice(Declared):
    """A table of a training that names a registered class."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, value in self.arguments.items():
            check_number(key, value)
        self.check()
        return self

    def check(self) -> None:
        """Raise ValueError if the constructor refuses the values."""
        self.declares(**self.arguments)


class OptimizerTable(Choice):
    """An optimiser, given by its name and the arguments of its constructor."""

    tables: ClassVar[Tables[OptimizerTable]]

    def build(self) -> MakeOptimizer:
        make: Any = self.declares
        if issubclass(self.declares, torch.optim.Optimizer):
            return lambda parameters, lr: make(parameters, lr=lr, **self.arguments)
        return make(**self.arguments)

    def check(self) -> None:
        if issubclass(self.declares, torch.optim.Optimizer):
            self.build()([nn.Parameter(torch.ones(2, 2))], 1e-3)
        else:
            super().check()

    @property
    def cycles_momentum(self) -> bool:
        """Whether the schedule 1cycle also sets the momentum."""
        return bool(getattr(self.declares, "cycles_momentum", False))


class ScheduleTable(Choice):
    """A learning rate schedule, given by its name and the arguments of its constructor."""

    tables: ClassVar[Tables[ScheduleTable]]

    def build(self) -> Schedule:
        return self.declares(**self.arguments)


class LossTable(Choice):
    """A loss, given by its name and the arguments of its constructor."""

    tables: ClassVar[Tables[LossTable]]

    def check(self) -> None:
        for key, value in self.arguments.items():
            if isinstance(value, float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
                raise ValueError(
                    f"{key} must be 0, or between {_SMALLEST:.2g} and {_LARGEST:.2g} in size, as "
                    f"float32 requires, got {value}"
                )
        super().check()

    def build(self) -> Loss:
        return self.declares(**self.arguments)


def _declared(base: type[_T], kind: str, name: str, registered: type) -> type[_T]:
    where = f"{kind} {name}: {registered.__qualname__}"
    of_torch = issubclass(registered, torch.optim.Optimizer)
    return declared(base, where, name, registered, {}, ("params", "lr") if of_torch else ())


OptimizerTable.tables = Tables(OPTIMIZERS, partial(_declared, OptimizerTable, "optimizer"))
ScheduleTable.tables = Tables(SCHEDULES, partial(_declared, ScheduleTable, "schedule"))
LossTable.tables = Tables(LOSSES, partial(_declared, LossTable, "loss"))

OptimizerSpec = Annotated[OptimizerTable, OptimizerTable.tables]
ScheduleSpec = Annotated[ScheduleTable, ScheduleTable.tables]
LossSpec = Annotated[LossTable, LossTable.tables]
