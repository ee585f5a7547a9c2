"""Sealed store -> functions to learn from, on a device."""

from operators.data.batch import Batch, Channel
from operators.data.opening import BUFFER_BYTES, open_pairs, read_pairs
from operators.data.pairs import Pairs, Passes, Samples
from operators.data.store import DataError
from operators.data.streaming import StreamedPairs
from operators.data.task import AtTime, Block, InTime, Map, Rollout, Task, TaskError
from operators.data.variables import Subsample, allowed_resolutions, averaging_weights

__all__ = [
    "BUFFER_BYTES",
    "AtTime",
    "Batch",
    "Block",
    "Channel",
    "DataError",
    "InTime",
    "Map",
    "Pairs",
    "Passes",
    "Rollout",
    "Samples",
    "StreamedPairs",
    "Subsample",
    "Task",
    "TaskError",
    "allowed_resolutions",
    "averaging_weights",
    "open_pairs",
    "read_pairs",
]
