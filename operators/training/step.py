"""Loss and gradient of a training step, accelerated by compilation and CUDA graphs.

A step computes the prediction, the loss and the clipped gradient. `Acceleration` selects how the
device runs a step. Tests compare accelerated steps with a step in plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import FunctionType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from operators.data import Batch, Rollout
from operators.data.samples import weights
from operators.training.memory import is_out_of_memory
from operators.training.ranks import ALONE, Ranks
from operators.training.recording import Recorded, Watch
from operators.transforms import Predictor

Loss = Callable[..., Tensor]  # (prediction, target, input[, weights])
Augmentation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Precision = Literal["float32", "tf32", "bf16"]


class AccelerationError(ValueError):
    """The device cannot run steps as requested. The message is one line."""

    exit_status = 2


@dataclass(frozen=True)
class Acceleration:
    """Precision, compilation and recording of a training step.

    Args:
        precision: Precision of matrix products: "float32", "tf32" or "bf16". "tf32" rounds factors
            to 10 bits and sums in float32. "bf16" is PyTorch's autocast. Fourier transforms, norms
            and the loss are always in float32.
        compiled: Whether torch.compile fuses kernels.
        graphed: Whether the kernels of a step are recorded once as a CUDA graph, and replayed.
        tuned: Whether compilation selects the kernels of matrix products by timing them. A kernel
            may also compute the bias, activation and residual sum after the product.
    """

    precision: Precision = "float32"
    compiled: bool = False
    graphed: bool = False
    tuned: bool = False

    @classmethod
    def chosen(
        cls, device: torch.device, precision: str = "auto", compiled: str = "auto"
    ) -> Acceleration:
        """The acceleration that a user's settings select on a device.

        On a GPU, "auto" stands for a compiled step in TF32, recorded as a CUDA graph. On the CPU,
        "auto" stands for float32 without compilation, because torch.compile takes minutes there
        and makes steps slower. Compilation takes some minutes longer with "tuned" than with "on".

        Args:
            precision: "auto" or a `Precision`.
            compiled: "auto", "on", "off" or "tuned".

        Raises:
            AccelerationError: If a setting is unknown, or if the device does not support it.
        """
        cuda = device.type == "cuda"
        precisions = ("auto", *get_args(Precision))
        if precision not in precisions:
            raise AccelerationError(
                f"unknown precision {precision!r}: known are {', '.join(precisions)}"
            )
        if compiled not in ("auto", "on", "off", "tuned"):
            raise AccelerationError(f"compile must be auto, on, off or tuned, got {compiled!r}")
        if precision in ("tf32", "bf16") and not (
            cuda and torch.cuda.get_device_capability(device) >= (8, 0)
        ):
            raise AccelerationError(
                f"precision {precision} needs a CUDA device of compute capability 8.0 or more, "
                f"not {device.type}: use float32"
            )
        if precision == "auto":
            ampere = cuda and torch.cuda.get_device_capability(device) >= (8, 0)
            precision = "tf32" if ampere else "float32"
        fusing = cuda and find_spec("triton") is not None
        requested = compiled in ("on", "tuned")
        if requested and cuda and not fusing:
            raise AccelerationError("compiling for CUDA needs triton, which is not installed")
        on = requested or (compiled == "auto" and cuda)
        return cls(
            precision,  # pyright: ignore[reportArgumentType]
            compiled=on and (fusing or requested),
            graphed=on and cuda,
            tuned=compiled == "tuned",
        )

    def __str__(self) -> str:
        compiled = "compiled and tuned" if self.tuned else "compiled"
        parts = [self.precision, compiled if self.compiled else "as written"]
        return ", ".join(parts + ["one CUDA graph"] * self.graphed)

    @contextmanager
    def products(self) -> Iterator[None]:
        """Context in which matrix products and convolutions have this precision."""
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = self.precision == "tf32"  # convolutions
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32 = before[1]


AS_WRITTEN = Acceleration()


class Step:
    """A function that returns the loss of a batch. The parameters receive the clipped gradient.

    Args:
        x: Points of the inputs that all samples share; None if they differ by sample.
        y: Points of the targets that all samples share; None if they are those of the inputs.
        loss: Function (prediction, target, input) -> scalar. If the points have quadrature weights,
            the function gets these as its fourth argument.
        clip: Norm to which larger gradients are scaled down.
        augment: Augmentation of each batch; None for no augmentation.
        weight: Quadrature weights of the targets that all samples share; None for equal weights.
        grids: Points x of each grid, if batches have one of several grids. Steps are then not
            recorded as a CUDA graph, because every graph has gradients of its own.
    """

    def __init__(
        self,
        predictor: Predictor,
        x: Tensor | None,
        y: Tensor | None,
        loss: Loss,
        clip: float,
        augment: Augmentation | None = None,
        acceleration: Acceleration = AS_WRITTEN,
        ranks: Ranks = ALONE,
        weight: Tensor | None = None,
        grids: Sequence[Tensor] = (),
    ) -> None:
        acceleration = replace(acceleration, graphed=acceleration.graphed and not grids)
        self.acceleration, self.ranks, self.clip, self.augment = acceleration, ranks, clip, augment
        self.note = ""  # why a step is not run as requested
        self.parameters = [p for p in predictor.parameters() if p.requires_grad]
        self.buffers = list(predictor.buffers())
        all_points, shared_y, shared_weight = predictor.on(x, y), y, weight
        at = {tuple(points.shape[:-1]): predictor.on(points, y) for points in grids}
        task = predictor.task
        forced = isinstance(task, Rollout) and task.teacher_forcing

        def loss_of(
            a: Tensor,
            u: Tensor,
            x: Tensor | None = None,
            y: Tensor | None = None,
            weight: Tensor | None = shared_weight,
            mask: Tensor | None = None,
            parameters: Tensor | None = None,
        ) -> Tensor:
            with torch.autocast(
                a.device.type, torch.bfloat16, enabled=acceleration.precision == "bf16",
                cache_enabled=not acceleration.graphed,
            ):  # fmt: skip
                channels = predictor.operator.out_channels
                steps = u.shape[-1] // channels
                inputs, truth = task.noisy_inputs(a, channels, mask), u if forced else None
                predict = at.get(tuple(a.shape[1:-1]), all_points)
                prediction = predict(inputs, x, y, mask, steps, truth, weight).to(u.dtype)
            same_points = shared_y is None and y is None
            quadrature = weights(weight, mask if same_points else None, u)
            weighted = () if quadrature is None else (quadrature,)
            if steps == 1:
                return loss(prediction, u, a, *weighted)
            pairs = zip(prediction.split(channels, -1), u.split(channels, -1), strict=True)
            return torch.stack([loss(p, v, a, *weighted) for p, v in pairs]).mean()

        self._plain_loss = self._loss = loss_of
        self._recorded: Recorded | None = None

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """The loss of a batch. The random numbers of the step depend only on `seed`."""
        with self.acceleration.products():
            self._prepare(batch)
            _seed(seed, batch.a.device)
            loss = (self._recorded or self._gradient)(batch)
            if self.ranks.count > 1:
                self.ranks.mean_gradient(self.parameters)
                self._clip()
        return loss

    def __str__(self) -> str:
        return "; ".join(part for part in (str(self.acceleration), self.note) if part)

    def _gradient(self, batch: Batch) -> Tensor:
        return self._gradient_of(self._loss, batch)

    def _gradient_of(self, loss_of: Callable[..., Tensor], batch: Batch) -> Tensor:
        for p in self.parameters:
            p.grad = None
        a, u = self.augment(batch.a, batch.u) if self.augment else (batch.a, batch.u)
        loss = loss_of(a, u, **batch.per_sample)
        loss.backward()
        if self.ranks.count == 1:  # else after the mean
            self._clip()
        return loss.detach()

    def largest(self, batch: Batch) -> int:
        """Largest size that fits into memory: half the batch, a quarter, ...; 0 if none fits."""
        size = len(batch)
        while size := size // 2:
            try:
                self._gradient_of(self._plain_loss, batch[:size])
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            else:
                break
        return size

    def _clip(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)

    def _prepare(self, batch: Batch) -> None:
        """Compile and record the step in the first call. Weights and buffers do not change.

        An acceleration that fails is switched off, and `note` contains the reason.
        """
        if self.acceleration.compiled and self._loss is self._plain_loss:
            self._keeping_buffers(self._compile, batch)
        if self.acceleration.graphed and self._recorded is None:
            self._keeping_buffers(self._record, batch)

    def _keeping_buffers(self, act: Callable[[Batch], None], batch: Batch) -> None:
        """Call a function of the batch, then restore the buffers."""
        before = [b.clone() for b in self.buffers]
        act(batch)
        with torch.no_grad():
            for buffer, value in zip(self.buffers, before, strict=True):
                buffer.copy_(value)

    def _compile(self, batch: Batch) -> None:
        try:
            self._loss = compiled(self._plain_loss, self.acceleration.tuned)
            self._gradient(batch)
        except Exception as error:  # a compiler raises errors of many types
            if _is_out_of_memory(error):
                raise
            self._loss = self._plain_loss
            self._switch_off("compiled", "not compiled", error)

    def _record(self, batch: Batch) -> None:
        with Watch() as watch:
            self._gradient_of(self._plain_loss, batch)
        if watch.waits:
            waits = ", ".join(sorted(watch.waits))
            self._switch_off("graphed", "no CUDA graph", f"the operator waits for values ({waits})")
            return
        try:
            self._recorded = Recorded(self._gradient, batch)
        except RuntimeError as error:
            if _is_out_of_memory(error):
                raise
            calls = ", ".join(sorted(watch.solvers))
            self._switch_off(
                "graphed", "no CUDA graph", error, f" (it calls {calls})" if calls else ""
            )

    def _switch_off(self, name: str, effect: str, why: Exception | str, more: str = "") -> None:
        """Switch an acceleration off, and append the reason to `note`.

        Args:
            name: Field of `Acceleration`.
            effect: Description of the missing acceleration, such as "not compiled".
            why: The reason, or the error that was raised.
            more: Text that is appended to the reason.
        """
        self.acceleration = replace(self.acceleration, **{name: False})
        # the end of a failed capture raises an error of its own, on top of the cause
        while isinstance(why, Exception) and isinstance(why.__context__, RuntimeError):
            why = why.__context__
        reason = (str(why).strip() or type(why).__name__).splitlines()[0] + more
        self.note = "; ".join(part for part in (self.note, f"{effect}: {reason}") if part)


def _seed(seed: int, device: torch.device) -> None:
    """Seed the random numbers of a device. `torch.manual_seed` also seeds devices that are not
    used, which takes 0.15 ms without a GPU: as long as the fused Adam of a small model."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def compiled(function: Callable[..., Any], tuned: bool = False) -> Callable[..., Any]:
    """Compile a function, separately for each shape of its arguments.

    PyTorch limits the number of compilations of one code object, and all closures of a function
    share one code object. This function therefore compiles a copy, which has its own limit.

    Args:
        tuned: Whether kernels of matrix products are chosen by timing them.
    """
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__,
        function.__defaults__, function.__closure__,
    )  # fmt: skip
    copy.__kwdefaults__ = function.__kwdefaults__
    return torch.compile(copy, dynamic=False, mode="max-autotune-no-cudagraphs" if tuned else None)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and is_out_of_memory(error)
