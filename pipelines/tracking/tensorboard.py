"""TensorBoard: event files in the folder of a run."""

from collections.abc import Sequence
from pathlib import Path

from pipelines.tracking.tracker import (
    RUNNING,
    Callback,
    MetricRow,
    TrackedRun,
    Tracker,
    TrackerError,
)

FOLDER = "tensorboard"
_SUFFIX = ".pdegen"


def tensorboard() -> Tracker:
    """Shows rows in RUN/tensorboard, as float32. Raises TrackerError if TensorBoard is not
    installed."""
    try:
        import tensorboard  # noqa: F401 (what follows needs it)
    except ImportError:
        raise TrackerError(
            "--track tensorboard needs TensorBoard: pip install 'pdegen-operators[track]'"
        ) from None
    return Tracker("tensorboard", _opened)


def event_files(folder: Path) -> list[Path]:
    """The event files that trainings of a run have written."""
    return sorted(folder.glob(f"events.out.tfevents.*{_SUFFIX}"))


def _opened(run: TrackedRun) -> Callback:
    """Writes all rows anew: a kill may have cut the last record of earlier files off, after which
    they cannot be appended to."""
    from torch.utils.tensorboard.writer import SummaryWriter

    for path in event_files(run.folder / FOLDER):
        path.unlink()
    # a TensorBoard that has read the earlier files forgets their steps
    writer = SummaryWriter(str(run.folder / FOLDER), purge_step=0, filename_suffix=_SUFFIX)
    written = 0

    def write(rows: Sequence[MetricRow], status: str, files: Sequence[Path]) -> None:
        nonlocal written
        for step, values in rows[written:]:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        written = len(rows)
        writer.flush() if status == RUNNING else writer.close()

    return write
