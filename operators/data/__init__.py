"""Read samples of sealed stores as batches of functions, and define the learning tasks."""

from operators.data.opening import BUFFER_BYTES, Streamed, open_pairs, read_pairs
from operators.data.resolution import DataError, Subsample, allowed_resolutions, averaging_weights
from operators.data.samples import (
    Batch,
    Channel,
    Map,
    Perturbation,
    Reader,
    Resident,
    Samples,
    Task,
    TaskError,
    distinguished,
)
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
