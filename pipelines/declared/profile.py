"""What a profile declares: operators on random functions of one grid."""

from typing import Annotated

from pydantic import Field

from pdegen.schema import Count, Name, Strict
from pipelines.declared.registry import ModelSpec


class Profiled(Strict):
    """An operator of a profile.

    Args:
        model: The operator.
        published: What was published of it, in words.
    """

    model: ModelSpec
    published: str = ""


class Profile(Strict):
    """Operators on random functions of one variable.

    Args:
        name, summary: For people.
        differs: What differs from what is published.
        points, batch: Grid points, and samples in a step.
        operators: By the names that the table shows.
        quick: The name of its small version, where there is one.
    """

    name: Name
    summary: str
    differs: str = ""
    quick: str = ""
    points: Count
    batch: Count
    operators: Annotated[dict[str, Profiled], Field(min_length=1)]
