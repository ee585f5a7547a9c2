"""Files of the two main flows, in the order of their first call: `python -m benchmarks.flows`.

The first flow leads from a recipe to the seal of its store, the second from a shard through one
epoch of a streamed training to the loss. A file is listed if a function in it is called.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from operators.training.fit import Epoch
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.experiment import load_experiment
from pipelines.runs.training import train

ROOT = Path(__file__).parents[1]
PACKAGES = ("pdegen", "operators", "pipelines")
RECIPE = {
    "samples": 24, "splits.train": 16, "splits.validation": 4, "splits.test": 4,
    "problem.resolution": 32, "problem.initial.modes": 11, "problem.solver.resolution": 64,
}  # fmt: skip
TRAINING = {
    "data.resolution": 32, "resolutions": [32], "training.epochs": 3, "model.modes": 3,
    "model.width": 8, "data.reading": "streamed",
}  # fmt: skip


@contextmanager
def traced(is_on: Callable[[], bool]) -> Iterator[dict[str, str]]:
    """Files of the packages whose functions are called while `is_on()`, and the first function."""
    files = dict[str, str]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and is_on() and path.is_relative_to(ROOT):
            relative = path.relative_to(ROOT)
            if relative.parts[0] in PACKAGES:
                files.setdefault(relative.as_posix(), frame.f_code.co_name)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]


def show(title: str, files: dict[str, str]) -> None:
    print(f"{title}: {len(files)} files")
    for path, function in files.items():
        print(f"  {path:45} {function}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe("burgers-quick").with_overrides(RECIPE)
        with traced(lambda: True) as files:
            url = generate(recipe, f"{folder}/store.zarr", workers=1).url
        show("recipe -> seal", files)
        experiment = load_experiment("burgers-quick", url).with_overrides(TRAINING)
        finished = list[int]()  # the second epoch is traced: the first one prepares
        on_epoch: Callable[[Epoch], None] = lambda epoch: finished.append(epoch.epoch)  # noqa: E731
        with traced(lambda: finished == [1]) as files:
            train(experiment, url, Path(folder) / "run", torch.device("cpu"), on_epoch=on_epoch)
        show("shard -> loss, the second epoch", files)


if __name__ == "__main__":
    main()
