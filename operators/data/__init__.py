"""Read samples of sealed stores as batches of functions, and define the learning tasks."""

from operators.data.batch import Batch, Channel, distinguished
from operators.data.errors import DataError
from operators.data.opening import BUFFER_BYTES, open_pairs, read_pairs
from operators.data.reading import Perturbation, Reader, Resident
from operators.data.resolution import Subsample, allowed_resolutions, averaging_weights
from operators.data.samples import Samples
from operators.data.streaming import Streamed
from operators.data.task import Map, Task, TaskError
from operators.data.trajectories import AtTime, Block, Rollout, TrajectoryTask

__all__ = [
    "BUFFER_BYTES",
    "AtTime",
    "Batch",
    "Block",
    "Channel",
    "DataError",
    "Map",
    "Perturbation",
    "Reader",
    "Resident",
    "Rollout",
    "Samples",
    "Streamed",
    "Subsample",
    "Task",
    "TaskError",
    "TrajectoryTask",
    "allowed_resolutions",
    "averaging_weights",
    "distinguished",
    "open_pairs",
    "read_pairs",
]
