"""Numbers of an equation that differ from sample to sample by a law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from pydantic import ValidationError, model_validator

from pdegen.sampling.scalars import ScalarLaw, corners, laws_of, variable_names, with_numbers
from pdegen.schema import SchemaError, Strict, explained
from pdegen.store.format import ParameterLaw
from pdegen.store.layout import Variable, scalar


class WithLaws(Strict):
    """A declaration whose numbers may be laws (`pdegen.sampling.scalars`)."""

    @model_validator(mode="after")
    def _every_number_fits(self) -> Self:
        """Validate the problem at all corners of the ranges of its laws."""
        for numbers in corners(self.laws):
            if numbers:
                content = with_numbers(self, numbers).model_dump()
                try:
                    type(self).model_validate(content)
                except ValidationError as error:
                    at = ", ".join(f"{key} = {value:g}" for key, value in numbers.items())
                    raise ValueError(f"at {at}: {explained(error, type(self), content)}") from None
        return self

    @property
    def laws(self) -> dict[str, ScalarLaw]:
        """The laws of the numbers that differ from sample to sample, by dotted keys."""
        return laws_of(self)

    @property
    def parameter_names(self) -> dict[str, str]:
        """The names of the variables that contain these numbers, by dotted keys."""
        return variable_names(list(self.laws))

    def parameters(self) -> tuple[Variable, ...]:
        """The variables that contain these numbers; `variables` includes them.

        >>> from pdegen.recipe import load_recipe
        >>> law = {"law": "uniform", "low": 0.1, "high": 0.2}
        >>> burgers = load_recipe("burgers-quick").with_overrides({"viscosity": law}).problem
        >>> [variable.name for variable in burgers.parameters()]
        ['viscosity']
        """
        names = self.parameter_names
        return tuple(
            scalar(names[key], "parameter", f"{key} of the sample, {law.sentence}")
            for key, law in self.laws.items()
        )

    def constants(self, *keys: str) -> dict[str, Any]:
        """The values of those keys that are the same for all samples, for attributes in stores."""
        return {key: getattr(self, key) for key in keys if key not in self.laws}

    def parameter_values(
        self, seed: int, samples: Sequence[int]
    ) -> dict[str, Float[np.ndarray, " batch"]]:
        """The numbers that differ from sample to sample, by dotted keys."""
        return {key: law.values(key, seed, samples) for key, law in self.laws.items()}

    def of_sample(self, seed: int, sample: int) -> Self:
        """The problem of one sample, in which numbers take the place of laws."""
        values = self.parameter_values(seed, [sample])
        return with_numbers(self, {key: float(value[0]) for key, value in values.items()})

    @property
    def typical(self) -> Self:
        """The problem with the median of each law in place of the law."""
        return with_numbers(self, {key: law.at(0.5) for key, law in self.laws.items()})

    @property
    def laws_by_variable(self) -> dict[str, ScalarLaw]:
        """The laws of these numbers, by the names of their variables."""
        names = self.parameter_names
        return {names[key]: law for key, law in self.laws.items()}

    @property
    def parameter_laws(self) -> dict[str, ParameterLaw]:
        """The descriptions of `laws_by_variable` in a store; `physics` includes them."""
        laws = self.laws_by_variable
        return {name: ParameterLaw(law.kind, law.low, law.high) for name, law in laws.items()}

    def refuse_laws(self, what: str) -> None:
        """Raise SchemaError if a number differs from sample to sample; `what` needs one number."""
        for key, law in self.laws.items():
            raise SchemaError(f"{what} one {key} for all samples, here it is {law.sentence}")
