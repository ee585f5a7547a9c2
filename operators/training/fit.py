"""Training: a loop that stops anywhere; a resumed training gives the same bits."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from operators.data import Batch, Pairs, Samples
from operators.defined import mean_defined, undefined
from operators.seeds import stream_seed
from operators.training.checkpoint import (
    CheckpointError,
    check_checkpoint,
    load_state,
    saving_checkpoint,
    saving_state,
)
from operators.training.evaluate import errors_of, scores
from operators.training.files import DamagedError, read_lines, write_lines
from operators.training.memory import is_out_of_memory, keep_memory
from operators.training.ranks import ALONE, Ranks
from operators.training.soap import SOAP
from operators.training.step import AS_WRITTEN, Acceleration, Augmentation, Loss, Step
from operators.training.writer import Writer
from operators.transforms import Predictor

MakeOptimizer = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]


def adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Adam with its default constants, all parameters in one pass."""
    return torch.optim.Adam(parameters, lr=lr, fused=True)


class TrainingError(ArithmeticError):
    """Training cannot go on."""

    exit_status = 1


class Stopped(Exception):
    """Training was asked to stop; its state is saved."""


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        loss: (prediction, target, input) -> scalar, in physical units.
        epochs: Passes over the training samples.
        batch: Samples in a step; the last incomplete batch of an epoch is dropped.
        optimizer: Makes the optimizer from parameters and learning rate.
        lr: Peak learning rate of the 1cycle schedule (Smith and Topin 2019): from lr/div by a
            cosine up to lr and down to lr/(div final_div).
        cycle_momentum: Let β₁ go 0.95 -> 0.85 -> 0.95 meanwhile, as published.
        warmup: Share of the steps before the peak.
        div, final_div: See `lr`.
        clip: Largest norm of the gradient.
        seed: Seed of order, augmentation and dropout: all are functions of (seed, step).
        augment: Acts on each batch; None for none.
        average: Decay of an exponential moving average of the weights, which is then what is
            evaluated and saved; 0 for none.
    """

    loss: Loss
    epochs: int = 100
    batch: int = 8
    optimizer: MakeOptimizer = adam
    lr: float = 1e-3
    cycle_momentum: bool = True
    warmup: float = 0.3
    div: float = 1e4
    final_div: float = 1e4
    clip: float = 0.999
    seed: int = 0
    augment: Augmentation | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(f"need epochs, batch >= 1, got {self.epochs}, {self.batch}")
        if not (self.lr > 0 and 0 < self.warmup < 1 and self.clip > 0 and 0 <= self.average < 1):
            raise ValueError(
                "need lr > 0, 0 < warmup < 1, clip > 0, 0 <= average < 1, got "
                f"{self.lr}, {self.warmup}, {self.clip}, {self.average}"
            )

    def steps(self, samples: int) -> int:
        """Steps of a training on so many samples.

        Raises:
            ValueError: If there are none, or the schedule does not exist for them.
        """
        if self.batch > samples:
            raise ValueError(f"batch {self.batch} is larger than the {samples} samples to train")
        steps = samples // self.batch * self.epochs
        if self.warmup * steps == 1:  # PyTorch divides by the length of the rise, steps - 1
            raise ValueError(
                f"warmup {self.warmup} is one of {steps} steps: the learning rate cannot rise "
                "within one step, use another warmup or more epochs"
            )
        return steps

    def schedule(
        self, optimizer: torch.optim.Optimizer, steps: int
    ) -> torch.optim.lr_scheduler.OneCycleLR:
        """The learning rate over so many steps."""
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            self.lr,
            total_steps=steps,
            pct_start=self.warmup,
            cycle_momentum=self.cycle_momentum,
            div_factor=self.div,
            final_div_factor=self.final_div,
        )


@dataclass(frozen=True)
class Epoch:
    """What is recorded of an epoch: its mean training loss, the mean score of the selection
    samples afterwards (of those whose target is not 0), the learning rate at its end, and its
    seconds."""

    epoch: int
    loss: float
    score: float
    lr: float
    seconds: float


def fit(
    predictor: Predictor,
    train: Samples,
    selection: Samples,
    settings: Settings,
    folder: Path,
    description: dict[str, Any],
    *,
    resume: bool = False,
    acceleration: Acceleration = AS_WRITTEN,
    ranks: Ranks = ALONE,
    on_start: Callable[[str], None] = lambda how: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_saved: Callable[[list[Epoch]], None] = lambda history: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Epoch]:
    """Train, and leave best.safetensors, last.safetensors and state.pt in the folder.

    Every random number of a step is a function of (seed, step), so a run that was stopped or
    killed and is resumed ends with the same bits as one that was not (on one device with
    deterministic kernels, the CPU among them).

    Args:
        predictor: What to train, on the device of the data.
        train, selection: Samples to learn from; samples whose mean score chooses "best".
        settings: How.
        folder: Where to.
        description: Saved with the checkpoints.
        resume: Continue from state.pt.
        acceleration: How steps are run.
        ranks: The processes that share each batch. The losses are those of one process where the
            samples are in memory and no random numbers (of dropout, augmentation) or statistics
            of a batch enter, which each process has of its own. Samples that are read or solved
            meanwhile come in another order.
        on_start: Called after the first step with how steps are run.
        on_epoch: Called after each epoch, whose files are written while the next one begins.
        on_saved: Called with all epochs of a checkpoint, once it is on the disk: after each epoch
            in the thread that writes, while the next one begins, and when a training is resumed.
        stop: Asked after each step; when true the state is saved and `Stopped` raised.

    Raises:
        Stopped: See `stop`.
        TrainingError: When the loss or the mean error of the selection samples is not finite, or
            the memory too small.
        ValueError: If a batch is larger than the data, or does not divide among the processes.
        DataError: If the data cannot be read.
    """
    total_steps = settings.steps(len(train))
    if settings.batch % ranks.count:
        raise ValueError(f"batch {settings.batch} does not divide among {ranks.count} processes")
    if train.device.type == "cpu":
        keep_memory()
    steps_per_epoch, own_batch = len(train) // settings.batch, settings.batch // ranks.count
    optimizer = settings.optimizer(predictor.parameters(), settings.lr)
    schedule = settings.schedule(optimizer, total_steps)
    averaged = deepcopy(predictor) if settings.average else predictor
    step, total, seconds, history = 0, torch.zeros((), device=train.device), 0.0, []
    declared = json.dumps([description.get(k) for k in ("operator", "experiment")], sort_keys=True)
    if resume:
        saved = load_state(folder / "state.pt", train.device)
        if saved.get("of", declared) != declared:
            raise CheckpointError(f"{folder / 'state.pt'} is of another training")
        try:
            predictor.load_state_dict(saved["predictor"])
            averaged.load_state_dict(saved["averaged"])
            optimizer.load_state_dict(saved["optimizer"])
            schedule.load_state_dict(saved["schedule"])
            step, total, seconds = saved["step"], saved["total"], saved["seconds"]
            history = [Epoch(**epoch) for epoch in saved["history"]]
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{folder / 'state.pt'} is of another model: {error}") from None
        for name in ("best", "last") if history else ():
            path = folder / f"{name}.safetensors"
            if _is_of_another(check_checkpoint(path), description):
                raise CheckpointError(f"{path} is of another training")
        if ranks.first and history:  # the state was written before the history
            _write_history(folder, history)
            on_saved(list(history))

    ranks.same(predictor)
    gradient = Step(
        predictor, train.x, train.y, settings.loss, settings.clip, settings.augment, acceleration,
        ranks, train.weight,
    )  # fmt: skip
    if isinstance(optimizer, SOAP):
        optimizer.graphed = acceleration.graphed

    def saving() -> Callable[[], None]:
        state = {
            "predictor": predictor.state_dict(), "averaged": averaged.state_dict(),
            "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
            "step": step, "total": ranks.mean(total), "seconds": seconds + time.monotonic() - start,
            "history": [vars(epoch) for epoch in history], "of": declared,
        }  # fmt: skip
        return saving_state(folder / "state.pt", state)

    start, start_step = time.monotonic(), step
    predictor.train()
    with Writer() as writer:

        def write(*jobs: Callable[[], None]) -> None:
            if ranks.first:
                writer(*jobs)

        for epoch in range(len(history), settings.epochs):
            first = step - epoch * steps_per_epoch
            own = train.batches(settings.seed, epoch, own_batch, first, ranks.rank, ranks.count)
            with closing(own) as batches:
                for batch in batches:
                    # of dropout and augmentation
                    key = (settings.seed, 1, step, *([ranks.rank] if ranks.count > 1 else []))
                    loss = None
                    try:
                        loss = gradient(batch, stream_seed(*key))
                        optimizer.step()
                    except torch.linalg.LinAlgError as error:  # pyright: ignore[reportPrivateImportUsage]
                        if _is_finite(predictor):
                            raise
                        raise TrainingError(
                            f"the gradient is not finite in epoch {epoch + 1}: "
                            f"{_why_not_finite(train)}"
                        ) from error
                    except RuntimeError as error:
                        if not is_out_of_memory(error):
                            raise
                    if loss is None:  # by now the error has let go of what it held in memory
                        raise _too_large(gradient, batch)
                    if step == start_step:
                        on_start(str(gradient))
                    schedule.step()
                    step += 1
                    if averaged is not predictor:
                        decay = min(settings.average, (1 + step) / (10 + step))
                        _average(averaged, predictor, decay)
                    total += loss
                    if ranks.any(stop()):
                        write(saving())
                        writer.join()
                        raise Stopped(f"stopped in epoch {epoch + 1}, after step {step}")
            mean_loss = float(ranks.mean(total)) / steps_per_epoch
            if not math.isfinite(mean_loss):
                raise TrainingError(
                    f"the loss is not finite in epoch {epoch + 1}: {_why_not_finite(train)}"
                )
            errors = scores(averaged, selection)
            score = mean_defined(errors)
            if not math.isfinite(score):
                raise TrainingError(
                    f"the mean error of the selection samples is not finite in epoch {epoch + 1}: "
                    "use a smaller lr; earlier epochs are kept"
                )
            best = not history or score < min(e.score for e in history)
            lr = float(schedule.get_last_lr()[0])
            now = time.monotonic()
            history.append(Epoch(epoch + 1, mean_loss, score, lr, seconds + now - start))
            seconds, start = 0.0, now  # of this epoch, those before a stop among them
            total = torch.zeros_like(total)
            described = {**description, "epoch": epoch + 1, "selection_score": score}
            if left := undefined(selection.samples.tolist(), errors.tolist()):
                described["selection_left_out"] = left
            write(
                *(
                    saving_checkpoint(folder / f"{name}.safetensors", averaged, described)
                    for name in (("best", "last") if best else ("last",))
                ),
                saving(),
                partial(_write_history, folder, list(history)),
                partial(on_saved, list(history)),
            )
            on_epoch(history[-1])
    return history


def _is_finite(predictor: nn.Module) -> bool:
    """Whether the gradients of all parameters are finite."""
    gradients = [p.grad for p in predictor.parameters() if p.grad is not None]
    return all(bool(gradient.isfinite().all()) for gradient in gradients)


def _why_not_finite(train: Samples) -> str:
    """What to say of a loss that is not finite."""
    zero = list[int]()
    if isinstance(train, Pairs):
        empty = errors_of(torch.zeros_like(train.u), train.all, train)[:, 0]
        zero = undefined(train.samples.tolist(), empty.tolist())
    if zero:
        named = ", ".join(map(str, zero[:3])) + (", ..." if len(zero) > 3 else "")
        return f"the target is 0 in training samples, and no loss is relative to it: {named}"
    return "use a smaller lr; of targets in time that are 0 at first, task.skip leaves these out"


def _is_of_another(header: dict[str, Any], description: dict[str, Any]) -> bool:
    """Whether a checkpoint says another thing of its training; earlier versions say less."""
    plain = json.loads(json.dumps(description))
    return any(header.get(key, plain[key]) != plain[key] for key in plain)


@torch.no_grad()
def _average(averaged: nn.Module, current: nn.Module, decay: float) -> None:
    """averaged <- decay averaged + (1 - decay) current; buffers are averages of their own."""
    # all in one kernel, as PyTorch's own optimizers
    torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
        list(averaged.parameters()), list(current.parameters()), 1 - decay
    )
    for old, new in zip(averaged.buffers(), current.buffers(), strict=True):
        old.copy_(new)


def _too_large(gradient: Step, batch: Batch) -> TrainingError:
    """What to say of a batch that does not fit into the memory."""
    fits = gradient.largest(batch)
    grid = " x ".join(map(str, batch.a.shape[1:-1]))
    return TrainingError(
        f"no memory is left for batch {len(batch)} on {grid} points: "
        + (f"use batch {fits}, which fits" if fits else "not even one sample fits")
    )


def _write_history(folder: Path, history: list[Epoch]) -> None:
    write_lines(folder / "history.jsonl", [vars(epoch) for epoch in history])


def read_history(folder: Path) -> list[Epoch]:
    """What was recorded of the epochs of a training.

    Raises:
        DamagedError: If it is not what was written.
        OSError: If it is absent, or cannot be read.
    """
    path = folder / "history.jsonl"
    try:
        history = [Epoch(**line) for line in read_lines(path)]
    except TypeError:
        raise DamagedError(f"{path} is damaged: a line is of no epoch") from None
    if [epoch.epoch for epoch in history] != list(range(1, len(history) + 1)):
        raise DamagedError(f"{path} is damaged: an epoch is missing")
    return history
