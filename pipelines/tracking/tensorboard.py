"""TensorBoard tracker. It writes event files to the folder of a run."""

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
    """Tracker that writes TensorBoard event files to RUN/tensorboard, in float32.

    Raises TrackerError if TensorBoard is not installed.
    """
    try:
        import tensorboard  # noqa: F401 - checks that it is installed
    except ImportError:
        raise TrackerError(
            "--track tensorboard needs TensorBoard: pip install 'pdegen-operators[track]'"
        ) from None
    return Tracker("tensorboard", _opened)


def event_files(folder: Path) -> list[Path]:
    """Event files that trainings have written to a folder."""
    return sorted(folder.glob(f"events.out.tfevents.*{_SUFFIX}"))


def _opened(run: TrackedRun) -> Callback:
    """Start the output of a training. Event files of earlier processes are deleted and rewritten.

    Earlier files cannot be extended, because their last record may be truncated if the training was
    killed.
    """
    from torch.utils.tensorboard.writer import SummaryWriter

    for path in event_files(run.folder / FOLDER):
        path.unlink()
    # purge_step: a running TensorBoard drops the steps of the earlier files
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
