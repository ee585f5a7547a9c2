"""The table `task` of an experiment: what is learned."""

from typing import Annotated, Literal

from pydantic import Field

from operators.data import AtTime, Block, Map, Rollout, Task
from pdegen.schema import Count, NonNegative, Strict

Names = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class MapTask(Strict):
    """Inputs -> targets, all channels at once (`operators.data.Map`).

    Args:
        inputs, targets: Names of the variables, side by side as channels; by default data.input and
            data.target.
        parameters: Whether the numbers of a sample are further inputs.
    """

    kind: Literal["map"]
    inputs: Names | None = None
    targets: Names | None = None
    parameters: bool = False

    def build(self) -> Task:
        return Map(parameters=self.parameters)


class RolloutTask(Strict):
    """The last frames of data.target -> the next one (`operators.data.Rollout`).

    Args:
        history: Frames that are seen.
        steps: Frames that are predicted in a step of training, one after another.
        teacher_forcing: Whether these steps see true frames in place of predicted ones.
        noise: Deviation of Gaussian noise on the frames in training, over their root mean
            square. [1]
        static: Whether data.input is seen beside the frames.
        parameters: Whether the numbers of a sample are further inputs.
        frames: Frames of the trajectories in training; later ones are scored apart. By default all.
    """

    kind: Literal["rollout"]
    history: Count = 1
    steps: Count = 1
    teacher_forcing: bool = False
    noise: NonNegative = 0.0
    static: bool = False
    parameters: bool = False
    frames: Count | None = None

    def build(self) -> Task:
        return Rollout(**self.model_dump(exclude={"kind"}))


class TimeTask(Strict):
    """data.input, or the first frames, and a time -> data.target then (`operators.data.AtTime`).

    Args:
        history: Frames that are seen; 0 for data.input in their place.
        skip: Frames after these that are not asked for, such as a first one that is 0.
        parameters: Whether the numbers of a sample are further inputs.
        frames: Frames of the trajectories in training; later ones are scored apart. By default all.
    """

    kind: Literal["time"]
    history: Annotated[int, Field(ge=0)] = 0
    skip: Annotated[int, Field(ge=0)] = 0
    parameters: bool = False
    frames: Count | None = None

    def build(self) -> Task:
        return AtTime(**self.model_dump(exclude={"kind"}))


class BlockTask(Strict):
    """The first frames of data.target -> all later ones at once (`operators.data.Block`).

    Args:
        history: Frames that are seen.
        parameters: Whether the numbers of a sample are further inputs.
    """

    kind: Literal["block"]
    history: Count = 1
    parameters: bool = False

    def build(self) -> Task:
        return Block(**self.model_dump(exclude={"kind"}))


TaskSpec = Annotated[MapTask | RolloutTask | TimeTask | BlockTask, Field(discriminator="kind")]
