"""A learned gradient descent: small networks between adjoint gradients, trained stage by stage."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from operators.data import Pairs
from operators.registry import build_operator
from operators.training.checkpoint import CheckpointError, check_checkpoint, load_checkpoint
from operators.training.evaluate import predictions
from operators.training.files import FileError, read, read_json, write_json
from operators.training.fit import Epoch, fit
from operators.transforms import Extent, Normalizer, Predictor
from pdegen.inverse.misfit_gradient import MisfitGradient
from pdegen.inverse.setting import ClassicalMethod, Estimate, Inversion, Setting
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.store import open_sealed
from pipelines.declared.experiment import Experiment
from pipelines.runs.data import Source
from pipelines.runs.keys import experiment_key

MOST = 10  # stages
_KNOWN = 200  # training samples, at most, that the gradient's model is fitted to
# of each stage; its convolutions see some ten cells, the adjoint gradient sees all
_MODEL = {"name": "unet", "width": 12, "levels": 2, "coordinates": "none"}


@dataclass(frozen=True)
class Unrolled:
    """p_{k+1} = p_k + N_k(p_k, ∇½ mean ((H u(p_k) - d)/s)², ε), k = 0 ... K - 1.

    p is the share of the upper phase in each cell, p_0 its mean over training samples; the gradient
    is that of the true solver, by one adjoint solve, ε the noise level, N_k a small U-Net. Training
    is greedy: N_k learns the rest p - p_k, in the relative L² norm, from what the stages before it
    make of the training samples, and its gradients are data, not differentiated. Noise of the
    training samples is drawn once, at levels of the experiment's range; the epoch of each stage is
    chosen on validation samples.

    The gradient sees large parts of what is missing, and hardly any small part of the interface,
    for nothing stands in for the second derivative that classical steps use. So the stages after
    the first gain little on data of 43 x 43 cells: this is a baseline, not a method to prefer.

    Args:
        experiment: u -> a with a range of noise levels; its training settings are those of a stage.
        store: Its data.
        folder: Holds a folder for each stage, with its checkpoint.
        stages: K.

    Raises:
        SchemaError: On an impossible number of stages, or noise without a range.

    References: J. Adler and O. Öktem, Solving ill-posed inverse problems using iterative deep
    neural networks, Inverse Problems 33 (2017), without their memory; A. Hauptmann et al.,
    Model-based learning for accelerated, limited-view 3-D photoacoustic tomography, IEEE Trans.
    Med. Imaging 37 (2018), for the greedy training.
    """

    experiment: Experiment
    store: str
    folder: Path
    stages: int

    def __post_init__(self) -> None:
        if not 1 <= self.stages <= MOST:
            raise SchemaError(f"unrolled: a scheme has 1 to {MOST} stages, got {self.stages}")
        noise = self.experiment.noise
        if noise is None or noise.levels is None:
            raise SchemaError("unrolled: the noise of the experiment needs a range of levels")

    def check(self) -> None:
        """Raise SchemaError where the equation has no adjoint gradient, or the data are not on its
        cells."""
        _ = self.gradient

    @cached_property
    def source(self) -> Source:
        """The data, with a on the cells of u."""
        cells = {"data.target_resolution": self.experiment.data.resolution}
        noise = {"noise.fresh": False}
        return Source(self.store, self.experiment.with_overrides({**cells, **noise}))

    @cached_property
    def gradient(self) -> MisfitGradient:
        """Of the store's equation."""
        held = open_sealed(self.store)
        problem = Recipe.parse(held.attributes["recipe"], self.store).problem
        known = self.source.some("train", min(_KNOWN, len(self.source.streamed("train"))))
        x = known.points[:, 0, 0].double().numpy()
        a, u = (values[..., 0].double().numpy() for values in (known.u, known.a))
        return problem.misfit_gradient(Setting(x, a, u))

    @property
    def name(self) -> str:
        """Beside other methods."""
        return f"unrolled, {self.stages} stage" + "s" * (self.stages > 1)

    @property
    def method(self) -> ClassicalMethod:
        """As one that has no weight to choose; it is loaded when it is asked for."""
        return ClassicalMethod((1.0,), lambda _: self.inversion())

    def checkpoint(self, stage: int) -> Path:
        return self.folder / f"stage-{stage}" / "best.safetensors"

    @property
    def digest(self) -> str:
        """Of all stages."""
        made = b"".join(read(self.checkpoint(stage)) for stage in range(self.stages))
        return hashlib.sha256(made).hexdigest()

    def finished(self) -> bool:
        """Whether all stages are there, as they were made from this declaration."""
        return all(self._finished(stage) for stage in range(self.stages))

    def train(
        self,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train the stages that are not there; one that was stopped goes on where it was.

        Raises:
            Stopped: If it was asked to stop.
            SchemaError: See `check`.
        """
        if self.finished():
            return
        parts = [_Part.of(self, split) for split in ("train", "validation")]
        for stage in range(self.stages):
            start = process_time()
            pairs, selection = (part.pairs(self.gradient) for part in parts)
            if not self._finished(stage):
                self._fit(stage, pairs, selection, on_epoch, stop)
                seconds = process_time() - start
                made = {"of": self._made_from(stage), "processor_seconds": seconds}
                write_json(self.checkpoint(stage).with_name("done.json"), made)
            if stage < self.stages - 1:
                predictor = self._predictor(stage)
                parts = [
                    part.after(predictor, inputs)
                    for part, inputs in zip(parts, (pairs, selection), strict=True)
                ]

    @property
    def training_seconds(self) -> float:
        """Processor time of the trainings, with the gradients before each; of one that was resumed
        what came after."""
        places = (self.checkpoint(stage).with_name("done.json") for stage in range(self.stages))
        return sum(read_json(place)["processor_seconds"] for place in places)

    def inversion(self) -> Inversion:
        """From data and the deviation of their noise to the coefficient, by K gradients."""
        start, gradient = _mean_fraction(self), self.gradient
        points = self.source.streamed("train").points
        predictors = [self._predictor(stage) for stage in range(self.stages)]
        size, levels = float(np.mean(gradient.spread)), self.source.scale
        assert levels is not None

        def inverted(data: np.ndarray, deviation: np.ndarray) -> Estimate:
            told = np.full((1, 1, 1, 1), levels.told(float(np.mean(deviation)) / size))
            p = start[None]
            for predictor in predictors:
                with torch.no_grad():
                    found = predictor(_inputs(gradient, p, data[None], told), points)
                p = p + found.double().numpy()[..., 0]
            a = gradient.coefficient(np.clip(p[0], 0, 1))
            return Estimate(a, gradient.solves * self.stages)

        return inverted

    def _predictor(self, stage: int) -> Predictor:
        return load_checkpoint(self.checkpoint(stage), build_operator)[0]

    def _finished(self, stage: int) -> bool:
        path = self.checkpoint(stage)
        try:
            if read_json(path.with_name("done.json")).get("of") != self._made_from(stage):
                return False
            check_checkpoint(path)
        except (FileNotFoundError, FileError, CheckpointError):
            return False
        return True

    def _made_from(self, stage: int) -> str:
        before = b"" if stage == 0 else read(self.checkpoint(stage - 1))
        digest = hashlib.sha256(before).hexdigest()
        return experiment_key(self.experiment, self.store, model=_MODEL, before=digest)

    def _fit(
        self, stage: int, pairs: Pairs, selection: Pairs,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> None:  # fmt: skip
        settings, folder = self.experiment.training.settings(), self.checkpoint(stage).parent
        described = {"model": _MODEL, "in_channels": 3, "out_channels": 1, "dim": pairs.dim}
        description: dict[str, Any] = {"operator": described, "experiment": self._made_from(stage)}
        for resume in (True, False):
            torch.manual_seed(settings.seed + stage)
            predictor = Predictor(
                build_operator(described), Normalizer.of(pairs.a), Normalizer.of(pairs.u),
                extent=Extent.of(pairs.domain),
            )  # fmt: skip
            try:
                fit(predictor, pairs, selection, settings, folder, description,
                    resume=resume, on_epoch=on_epoch, stop=stop)  # fmt: skip
                return
            except (FileNotFoundError, CheckpointError):  # no state, or one that is damaged
                if not resume:
                    raise


@dataclass(frozen=True)
class _Part:
    """The samples of a split, and where the stages so far have brought them.

    Args:
        noisy: d and the level beside it; the targets are a.
        p: p_k of each sample.
        truth: p.
    """

    noisy: Pairs
    p: Float[np.ndarray, "samples n n"]
    truth: Float[np.ndarray, "samples n n"]

    @classmethod
    def of(cls, scheme: Unrolled, split: str) -> _Part:
        noisy = scheme.source.noisy(split)
        truth = scheme.gradient.fraction(noisy.u[..., 0].double().numpy())
        return cls(noisy, np.broadcast_to(_mean_fraction(scheme), truth.shape), truth)

    def pairs(self, gradient: MisfitGradient) -> Pairs:
        """(p_k, gradient, level) -> p - p_k."""
        d, told = (self.noisy.a[..., k].double().numpy() for k in (0, 1))
        a = _inputs(gradient, self.p, d, told[..., None])
        u = torch.from_numpy(self.truth - self.p).float()[..., None]
        return replace(self.noisy, a=a, u=u, input_channels=(), target_channels=())

    def after(self, predictor: Predictor, inputs: Pairs) -> _Part:
        """After one more stage."""
        return replace(self, p=self.p + predictions(predictor, inputs)[..., 0].double().numpy())


def _mean_fraction(scheme: Unrolled) -> Float[np.ndarray, "n n"]:
    """p_0."""
    total, count = 0.0, 0
    for block in scheme.source.streamed("train").targets:
        total, count = total + block[..., 0].double().sum(0).numpy(), count + len(block)
    return scheme.gradient.fraction(np.asarray(total) / count)


def _inputs(
    gradient: MisfitGradient,
    p: Float[np.ndarray, "samples n n"],
    d: Float[np.ndarray, "samples m m"],
    told: Float[np.ndarray, "samples _ _ 1"],
) -> Float[Tensor, "samples n n 3"]:
    """p_k clipped to [0, 1] for the solver, the gradient there, and the level."""
    slopes = [gradient(np.clip(one, 0, 1), data) for one, data in zip(p, d, strict=True)]
    known = np.broadcast_to(told[..., 0], p.shape)
    return torch.from_numpy(np.stack([p, np.stack(slopes), known], axis=-1)).float()
