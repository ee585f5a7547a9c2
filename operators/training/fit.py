"""The training loop. Training can stop after any step, and resuming does not change results."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from torch import Tensor, nn

from operators.base import Operator, stream_seed
from operators.data import Batch, Resident, Samples
from operators.data.samples import Drawn
from operators.norms import mean_defined, undefined
from operators.plugins import digests_of
from operators.training.checkpoint import (
    CheckpointError,
    Grids,
    check_checkpoint,
    load_state,
    saving_checkpoint,
    saving_state,
)
from operators.training.evaluate import errors_of, selection_errors
from operators.training.identity import MADE_FROM, check_made_from, training_key
from operators.training.optimizers import SOAP, Adam, MakeOptimizer
from operators.training.schedules import OneCycle, Schedule, Scheduled
from operators.training.step import (
    ALONE,
    AS_WRITTEN,
    Acceleration,
    Augmentation,
    Loss,
    Ranks,
    Step,
    is_out_of_memory,
    keep_memory,
)
from operators.transforms import Predictor
from pdegen.files import DamagedError, FileError, Writer, read, read_lines, write_lines

# Settings of a training: loss, optimizer and learning rate schedule.


@dataclass(frozen=True)
class Settings:
    """Settings of a training.

    Args:
        loss: Function (prediction, target, input) -> scalar. Its arguments are in physical units.
            A method `at`, if it has one, is called before each step with the share of steps done.
        epochs: Number of epochs.
        batch: Number of samples in a batch, summed over all processes.
        optimizer: Function (parameters, lr) -> optimizer.
        lr: Peak learning rate of the schedule.
        schedule: Function (lr, step, steps, epochs) -> learning rate of the step.
        cycle_momentum: Whether the schedule also sets the momentum, if it has one for each step.
        clip: Norm to which larger gradients are scaled down.
        seed: Seed of the sample order, augmentation and dropout.
        augment: Function (inputs, targets) -> (inputs, targets) applied to each batch; None for no
            augmentation.
        average: Decay of an exponential moving average of the weights. The averaged weights are
            then evaluated and saved. 0 turns averaging off.
    """

    loss: Loss
    epochs: int = 100
    batch: int = 8
    optimizer: MakeOptimizer = field(default_factory=Adam)
    lr: float = 1e-3
    schedule: Schedule = field(default_factory=OneCycle)
    cycle_momentum: bool = True
    clip: float = 0.999
    seed: int = 0
    augment: Augmentation | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(f"need epochs, batch >= 1, got {self.epochs}, {self.batch}")
        if not (self.lr > 0 and self.clip > 0 and 0 <= self.average < 1):
            raise ValueError(
                "need lr > 0, clip > 0, 0 <= average < 1, got "
                f"{self.lr}, {self.clip}, {self.average}"
            )

    def steps(self, samples: int) -> int:
        """Total number of training steps with `samples` training samples.

        Raises:
            ValueError: If a batch is larger than the data, or if the schedule cannot have this
                number of steps.
        """
        if self.batch > samples:
            raise ValueError(f"batch {self.batch} is larger than the {samples} training samples")
        steps = samples // self.batch * self.epochs
        check = getattr(self.schedule, "check", None)
        if check is not None:
            check(steps, self.epochs)
        return steps

    def scheduled(self, optimizer: torch.optim.Optimizer, steps: int) -> Scheduled:
        """The learning rates of an optimiser over `steps` steps."""
        return Scheduled(optimizer, self.schedule, steps, self.epochs, self.cycle_momentum)


# Weights that a training starts from: published ones, or those of an earlier training.


# names of tensors begin with one of these
_OF_CHECKPOINTS = ("operator.", "input.", "target.", "spectrum")


class StartError(FileError):
    """A weights file is missing, damaged, or for another operator. The message is one line."""


def renamed(operator: Operator, name: str) -> str:
    """Translate the name of a tensor in published weights to its name in this package."""
    for released, local in operator.released_names:
        name = name.replace(released, local)
    return name


def _kind(tensor: Tensor) -> str:
    """Number type of a tensor, for messages."""
    if tensor.is_floating_point():
        return "real numbers"
    return "complex numbers" if tensor.is_complex() else "integers"


def start_from(operator: Operator, path: Path) -> dict[str, Any]:
    """Load initial weights from a file. Tensors have the published names or those of this package.

    The file must contain exactly the tensors of the operator. A checkpoint of a run also contains
    normalisers, which are not used. Shapes must agree, except for tensors whose shapes depend on
    the numbers of channels. If these numbers differ in the file, such tensors keep their initial
    values. Real tensors may have any precision. All values must be finite.

    Args:
        path: A safetensors file, such as that of Poseidon-T for `scot`, or a checkpoint of a run.

    Returns:
        Entries for the record of a run: "sha256" is the SHA-256 of the file, and "anew" lists the
        tensors that keep their initial values.

    Raises:
        StartError: If the file is missing or does not fit. The operator is then unchanged.

    >>> from safetensors.torch import save_file
    >>> from operators.models.fno import FNO
    >>> model, path = FNO(width=8, modes=4), Path(getfixture("tmp_path")) / "w.safetensors"
    >>> save_file(FNO(width=8, modes=4).state_dict(), path)
    >>> start_from(model, path)["anew"]
    []
    """
    try:
        data = read(path)
        tensors = tensors_of(data)
        of_run = all(name.startswith(_OF_CHECKPOINTS) for name in tensors)
        if of_run:
            check_checkpoint(path)
    except OSError as error:
        raise StartError(f"{path}: {error.strerror or error}") from None
    except FileError as error:
        raise StartError(str(error)) from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise StartError(f"{path} is damaged, or not a safetensors file: {error}") from None
    if of_run:
        prefix, *_ = _OF_CHECKPOINTS
        tensors = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    given = {renamed(operator, name): tensor for name, tensor in tensors.items()}
    expected, kind = operator.state_dict(), type(operator).__name__
    if len(given) < len(tensors) or given.keys() != expected.keys():
        name = min(given.keys() ^ expected.keys(), default="one of two names for one tensor")
        problem = "is missing" if name in expected else "is not expected"
        raise StartError(f"{path} does not fit {kind} with these settings: {name} {problem}")
    anew = [name for name in expected if given[name].shape != expected[name].shape]
    for name in anew:
        if not name.startswith(operator.by_channels or ("\0",)):
            got, needed = (tuple(v[name].shape) for v in (given, expected))
            raise StartError(
                f"{path} does not fit {kind} with these settings: {name} has shape {got}, "
                f"expected {needed}"
            )
    taken = {name: given[name] for name in expected if name not in anew}
    for name, tensor in taken.items():
        if _kind(tensor) != (needed := _kind(expected[name])):
            got = str(tensor.dtype).removeprefix("torch.")
            raise StartError(f"{path}: {name} has numbers of type {got}, expected {needed}")
        if not tensor.to(expected[name].dtype).isfinite().all():
            raise StartError(f"{path}: {name} has numbers that are not finite")
    with torch.no_grad():
        for name, tensor in taken.items():
            expected[name].copy_(tensor)
    return {"sha256": hashlib.sha256(data).hexdigest(), "anew": anew}


class TrainingError(ArithmeticError):
    """Training cannot continue. The message is one line."""

    exit_status = 1


class Stopped(Exception):
    """Training has stopped on request, and its state is saved."""


@dataclass(frozen=True)
class Epoch:
    """Record of an epoch.

    Args:
        epoch: Number of the epoch, from 1.
        loss: Mean training loss of the epoch.
        score: Mean error of the selection samples after the epoch; of a `FlowPosterior`, its mean
            loss. Samples whose target is 0 are left out.
        lr: Learning rate at the end of the epoch.
        seconds: Duration of the epoch, without the time during which training was stopped.
        largest: Largest error of the selection samples after the epoch; None in epochs that earlier
            versions recorded.
    """

    epoch: int
    loss: float
    score: float
    lr: float
    seconds: float
    largest: float | None = None


def fit(
    predictor: Predictor,
    train: Samples,
    selection: Samples,
    settings: Settings,
    folder: Path,
    description: dict[str, Any],
    *,
    resume: bool = False,
    acceleration: Acceleration = AS_WRITTEN, ranks: Ranks = ALONE,
    draw: Callable[[Predictor, int], Drawn] | None = None, unlabelled: Samples | None = None,
    on_start: Callable[[str], None] = lambda how: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_saved: Callable[[list[Epoch]], None] = lambda history: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Epoch]:  # fmt: skip
    """Train a predictor; write best.safetensors, last.safetensors and state.pt into a folder.

    The random numbers of a step depend only on the seed and the step. An interrupted and resumed
    run therefore ends with the same bits as an uninterrupted run. This requires the same device and
    deterministic kernels, such as those of the CPU.

    Args:
        train: Samples to train on.
        selection: Samples whose mean error, or loss of a `FlowPosterior`, selects the best epoch.
        description: Entries of the headers of checkpoints.
        resume: Whether to continue from state.pt.
        ranks: The processes that share each batch. If the samples are in memory, the losses do not
            depend on the number of processes, unless the training has dropout, augmentation or
            batch statistics. The order of streamed or solved samples depends on that number.
        draw: Function (predictor, epoch) -> samples of the epoch, called before each epoch with the
            weights that are evaluated. The state contains its result. The reader of `train` needs
            an attribute `drawn`. By default `train` decides on the samples of an epoch.
        unlabelled: Samples of which each step gets as many as of `train`, after these. The loss
            must not use their targets. None for no such samples.
        on_start: Called after the first step, with a line that says how steps are run.
        on_epoch: Called after each epoch, while its files are being written.
        on_saved: Called with all completed epochs when their checkpoint is on the disk. The writer
            thread makes the call after each epoch. A resumed training also calls it at the start.
        stop: Called after each step. If it returns True, the state is saved and `Stopped` is
            raised.

    Raises:
        Stopped: If `stop` returned True.
        TrainingError: If the loss or the mean error of the selection samples is not finite, or if
            memory runs out.
        ValueError: If a batch is larger than the data, or is not divisible by the number of
            processes.
        DataError: If the data cannot be read.
    """
    settings.steps(len(train))  # raises for impossible settings
    if settings.batch % ranks.count:
        raise ValueError(f"batch {settings.batch} is not divisible by the {ranks.count} processes")
    if train.device.type == "cpu":
        keep_memory()
    state = _State(predictor, settings, train, description)
    if resume:
        state.load(folder, description)
        if ranks.first and state.history:  # the state was written before the history
            _write_history(folder, state.history, state.key)
            on_saved(list(state.history))
    ranks.same(predictor)
    gradient = Step(
        predictor, train.x, train.y, settings.loss, settings.clip, settings.augment, acceleration,
        ranks, train.weight, train.batch_points,
    )  # fmt: skip
    if isinstance(state.optimizer, SOAP):
        state.optimizer.graphed = gradient.acceleration.graphed
    state.start, start_step = time.monotonic(), state.step
    predictor.train()
    with Writer() as writer:
        write: Callable[..., None] = writer if ranks.first else lambda *jobs: None
        for epoch in range(len(state.history), settings.epochs):
            with closing(_steps(state, gradient, train, unlabelled, settings, epoch, draw)) as each:
                for _ in each:
                    if state.step == start_step + 1:
                        on_start(str(gradient))
                    if ranks.any(stop()):
                        write(state.saving(folder, ranks))
                        writer.join()
                        raise Stopped(f"stopped in epoch {epoch + 1}, after step {state.step}")
            mean_loss = float(ranks.mean(state.total)) / (len(train) // settings.batch)
            if not math.isfinite(mean_loss):
                raise _not_finite("loss", epoch + 1, train)
            errors = selection_errors(state.averaged, selection)
            best = state.end_epoch(mean_loss, errors)
            write(
                *_checkpoints(state, folder, description, best, selection, errors),
                state.saving(folder, ranks),
                partial(_write_history, folder, list(state.history), state.key),
                partial(on_saved, list(state.history)),
            )
            on_epoch(state.history[-1])
    return state.history


class _State:
    """The state of a training, stored in state.pt."""

    def __init__(
        self, predictor: Predictor, settings: Settings, train: Samples, description: dict[str, Any]
    ) -> None:
        self.predictor, self.average = predictor, settings.average
        self.averaged = deepcopy(predictor) if settings.average else predictor
        self.optimizer = settings.optimizer(predictor.parameters(), settings.lr)
        self.schedule = settings.scheduled(self.optimizer, settings.steps(len(train)))
        # step, and sum of the losses of the epoch so far
        self.step, self.total = 0, torch.zeros((), device=train.device)
        # seconds of the epoch before a stop, and start of the clock
        self.seconds, self.start = 0.0, time.monotonic()
        self.history: list[Epoch] = []
        self.drawn: Drawn | None = None  # samples of the present epoch
        identity = [description.get(key) for key in ("operator", "experiment")]
        if digests := digests_of(description):  # of users' files
            identity.append(digests)
        self.identity = json.dumps(identity, sort_keys=True)
        grids = Grids.of(train)
        self.grids = None if grids is None else grids.description()
        self.key = training_key(description)

    def load(self, folder: Path, description: dict[str, Any]) -> None:
        """Load the saved state. Raises CheckpointError if the state is that of another training."""
        path = folder / "state.pt"
        saved = load_state(path, self.total.device)
        if saved.get("of") != self.identity:
            raise CheckpointError(f"{path} belongs to another training")
        try:
            check_made_from(path, saved.get(MADE_FROM), self.key)
        except DamagedError as error:
            raise CheckpointError(str(error)) from None
        try:
            self.predictor.load_state_dict(saved["predictor"])
            self.averaged.load_state_dict(saved["averaged"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.schedule.go_to(saved["step"])
            self.step, self.total, self.seconds = saved["step"], saved["total"], saved["seconds"]
            self.history = [Epoch(**epoch) for epoch in saved["history"]]
            self.drawn = Drawn(**saved["drawn"]) if "drawn" in saved else None
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} belongs to another model: {error}") from None
        plain = json.loads(json.dumps(description))
        for name in ("best", "last") if self.history else ():
            path = folder / f"{name}.safetensors"
            header = check_checkpoint(path)
            # files of plugins may be renamed; checkpoints of earlier versions record no problem
            same = all(
                header.get(key) == plain[key] for key in plain.keys() - {"plugins", "problem"}
            )
            if not same or digests_of(header) != digests_of(plain):
                raise CheckpointError(f"{path} belongs to another training")
            epochs = [e for e in self.history if e.epoch == header["epoch"]]  # may be one ahead
            if any(epoch.score != header["selection_score"] for epoch in epochs):
                raise CheckpointError(f"{path} and {folder / 'state.pt'} are of two trainings")

    def saving(self, folder: Path, ranks: Ranks) -> Callable[[], None]:
        """Copy the present state; return a function that writes the copy to state.pt."""
        state = {
            "predictor": self.predictor.state_dict(), "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step, "total": ranks.mean(self.total),
            "seconds": self.seconds + time.monotonic() - self.start,
            "history": [vars(epoch) for epoch in self.history],
            "of": self.identity, MADE_FROM: self.key,
        }  # fmt: skip
        if self.drawn is not None:
            state["drawn"] = vars(self.drawn)
        return saving_state(folder / "state.pt", state)

    def count(self, loss: Tensor) -> None:
        """After a step: record the loss, and advance the schedule and the averaged weights."""
        self.schedule.step()
        self.step += 1
        if self.averaged is not self.predictor:
            decay = min(self.average, (1 + self.step) / (10 + self.step))
            _average(self.averaged, self.predictor, decay)
        self.total += loss

    def end_epoch(self, loss: float, errors: Tensor) -> bool:
        """Append an epoch to the history.

        Args:
            loss: Mean training loss.
            errors: Errors of the selection samples.

        Returns:
            Whether the epoch is the best so far.
        """
        epoch, score = len(self.history) + 1, mean_defined(errors)
        if not math.isfinite(score):
            raise TrainingError(
                f"the mean error of the selection samples is not finite in epoch {epoch}: "
                "use a smaller lr; earlier epochs are kept"
            )
        best = not self.history or score < min(e.score for e in self.history)
        lr, now = self.schedule.rate, time.monotonic()
        largest = float(errors.nan_to_num(nan=-math.inf).max())
        seconds = self.seconds + now - self.start
        self.history.append(Epoch(epoch, loss, score, lr, seconds, largest))
        self.seconds, self.start, self.drawn = 0.0, now, None
        self.total = torch.zeros_like(self.total)
        return best


def _checkpoints(
    state: _State, folder: Path, description: dict[str, Any], best: bool, selection: Samples,
    errors: Tensor,
) -> list[Callable[[], None]]:  # fmt: skip
    """Functions that write the checkpoints of an epoch."""
    last, excluded = state.history[-1], undefined(selection.ids.tolist(), errors.tolist())
    selected = {"epoch": last.epoch, "selection_score": last.score}
    header = {**description, "grids": state.grids, **selected}
    if excluded:
        header["selection_left_out"] = excluded
    return [
        saving_checkpoint(folder / f"{name}.safetensors", state.averaged, header)
        for name in (("best", "last") if best else ("last",))
    ]


def _steps(
    state: _State, gradient: Step, train: Samples, unlabelled: Samples | None, settings: Settings,
    epoch: int, draw: Callable[[Predictor, int], Drawn] | None,
) -> Generator[None, None, None]:  # fmt: skip
    """Run the remaining steps of an epoch, one in each iteration."""
    if draw is not None:
        state.drawn = state.drawn or draw(state.averaged, epoch)
        train = train.with_reader(drawn=state.drawn.numbers)
    batch, ranks = settings.batch, gradient.ranks
    first = state.step - epoch * (len(train) // settings.batch)
    share = batch // ranks.count, first, ranks.rank, ranks.count
    weigh, total = getattr(settings.loss, "at", None), settings.steps(len(train))
    with ExitStack() as stack:
        batches = stack.enter_context(closing(train.batches(settings.seed, epoch, *share)))
        if unlabelled is not None:  # as many in an epoch, which may be less or more than a pass
            more = replace(unlabelled, length=len(train)).batches(settings.seed, epoch, *share)
            pairs = zip(batches, stack.enter_context(closing(more)), strict=True)
            batches = (labelled.joined(others) for labelled, others in pairs)
        for samples in batches:
            if weigh is not None:
                weigh(state.step / total)
            # the random numbers of dropout and augmentation
            key = (settings.seed, 1, state.step, *([ranks.rank] if ranks.count > 1 else []))
            state.count(_stepped(state, gradient, samples, stream_seed(*key), train))
            yield


def _stepped(state: _State, gradient: Step, batch: Batch, seed: int, train: Samples) -> Tensor:
    """Run an optimizer step with the gradient of a batch; return the loss before the step."""
    try:
        loss = gradient(batch, seed)
        state.optimizer.step()
        return loss
    except torch.linalg.LinAlgError as error:  # pyright: ignore[reportPrivateImportUsage]
        gradients = [p.grad for p in state.predictor.parameters() if p.grad is not None]
        if all(bool(values.isfinite().all()) for values in gradients):
            raise
        raise _not_finite("gradient", len(state.history) + 1, train) from error
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    fits = gradient.largest(batch)  # here the error no longer holds tensors in memory
    grid = " x ".join(map(str, batch.a.shape[1:-1]))
    raise TrainingError(
        f"out of memory with batch {len(batch)} on {grid} points: "
        + (f"batch {fits} fits" if fits else "not even one sample fits")
    )


def _not_finite(quantity: str, epoch: int, train: Samples) -> TrainingError:
    """The error to raise for a non-finite loss or gradient; the message names a likely cause."""
    zero, constant = list[int](), list[int]()
    if isinstance(train.reader, Resident) and train.examples is None:
        errors = errors_of(torch.zeros_like(train.u), train.all, train)[:, 0]
        zero = undefined(train.ids.tolist(), errors.tolist())
        values = train.u.flatten(1, -2)
        constant = train.ids[(values == values[:, :1]).all(dim=(1, 2)).cpu()].tolist()
    why = "use a smaller lr; if targets are 0 at the first times, leave these out with task.skip"
    if numbers := zero or constant:
        named = ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")
        why = "the target is 0 in training samples, for which no relative loss exists"
        if not zero:
            why = "the target is constant in training samples; a loss of derivatives divides by 0"
        why += f": {named}"
    return TrainingError(f"the {quantity} is not finite in epoch {epoch}: {why}")


@torch.no_grad()
def _average(averaged: nn.Module, current: nn.Module, decay: float) -> None:
    """Update parameters: averaged <- decay averaged + (1 - decay) current. Copy the buffers."""
    # all parameters in one kernel, as in PyTorch's optimizers
    torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
        list(averaged.parameters()), list(current.parameters()), 1 - decay
    )
    for old, new in zip(averaged.buffers(), current.buffers(), strict=True):
        old.copy_(new)


def _write_history(folder: Path, history: list[Epoch], key: str) -> None:
    lines = [{k: v for k, v in vars(epoch).items() if v is not None} for epoch in history]
    write_lines(folder / "history.jsonl", [{**line, MADE_FROM: key} for line in lines])


def read_history(folder: Path, key: str | None = None) -> list[Epoch]:
    """Read the epochs from history.jsonl.

    Args:
        key: Key of the training (`training_key`), which the file must record. None does not compare
            it.

    Raises:
        DamagedError: If the file was changed, or belongs to another training.
    """
    path, lines = folder / "history.jsonl", read_lines(folder / "history.jsonl")
    recorded = list(dict.fromkeys(line.pop(MADE_FROM, None) for line in lines))
    for other in recorded if key is not None else ():
        check_made_from(path, other, key)
    try:
        history = [Epoch(**line) for line in lines]
    except TypeError:
        raise DamagedError(f"{path} is damaged: a line does not describe an epoch") from None
    if [epoch.epoch for epoch in history] != list(range(1, len(history) + 1)):
        raise DamagedError(f"{path} is damaged: an epoch is missing")
    return history
