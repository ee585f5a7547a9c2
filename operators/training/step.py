"""Loss and gradient of a training step, accelerated by compilation and CUDA graphs.

A step computes the prediction, the loss and the clipped gradient. `Acceleration` selects how the
device runs a step. Tests compare accelerated steps with a step in plain PyTorch.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any, Literal, TypeVar, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from operators.data import Batch, Rollout
from operators.data.samples import weights
from operators.posterior import FlowPosterior
from operators.transforms import Predictor

# Host memory: reuse of freed memory, and detection of out-of-memory errors.


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@cache
def keep_memory() -> None:
    """Let the process reuse the memory that it frees, as PyTorch does on GPUs.

    By default, glibc returns large blocks to the system. Pages that the system provides again are
    first filled with zeros, which takes some percent of the time of a step. Without glibc, this
    function does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def return_memory() -> None:
    """Return the memory that the process has freed to the system. Without glibc, only collect
    garbage."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether PyTorch raised an error because memory ran out."""
    message = str(error)
    return isinstance(error, torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in message and "allocate memory" in message
    )


# Training by several processes that torchrun started, or by a single process.


class RankError(RuntimeError):
    """The processes of a training cannot work together. The message is one line."""

    exit_status = 1


@dataclass(frozen=True)
class Ranks:
    """The rank of this process in a training, and communication with the other processes.

    All processes have the same weights.

    Args:
        rank: Index of this process.
        count: Number of processes.
        local: Index of this process among those on the same machine, and index of its GPU.
    """

    rank: int = 0
    count: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this process has rank 0. Only this process writes files and prints."""
        return self.rank == 0

    def mean_gradient(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their means over all processes, with a single all-reduce."""
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients]) / self.count
        _all_reduce(flat)
        for gradient, mean in zip(
            gradients, flat.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(mean.view_as(gradient))

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        value = value.clone() / self.count
        _all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is True in at least one process."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))  # on the host, so as not to wait for the device
        _all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def same(self, module: nn.Module) -> None:
        """Copy the weights and buffers of process 0 to all processes."""
        if self.count > 1:
            for value in module.state_dict().values():
                dist.broadcast(value, 0)

    def wait(self) -> None:
        """Wait until all processes have made this call."""
        self.any(False)


def _all_reduce(value: Tensor, operation: Any = dist.ReduceOp.SUM) -> None:
    """Replace a value by its reduction over all processes, by default the sum."""
    try:
        dist.all_reduce(value, op=operation)
    except RuntimeError as error:
        raise RankError(f"another process of the training has ended: {error}") from error


ALONE = Ranks()


@contextmanager
def torchrun(device: torch.device) -> Iterator[Ranks]:
    """Connect the processes that torchrun has started. Without torchrun, yield `ALONE`.

    The backend is gloo on CPUs and NCCL on GPUs. Each process has its own GPU. A process that fails
    exits at once, and torchrun then ends the other processes.

    Raises:
        RankError: If there are fewer GPUs than processes.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    ranks = Ranks(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    if device.type == "cuda":
        if ranks.local >= torch.cuda.device_count():
            raise RankError(
                f"process {ranks.local} of this machine has no GPU: there are "
                f"{torch.cuda.device_count()}"
            )
        torch.cuda.set_device(ranks.local)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, timeout=timedelta(days=1)
    )  # the first process may generate data
    yield ranks
    dist.destroy_process_group()


# Recording of a training step as a CUDA graph.


Result = TypeVar("Result")
_WARM_UP = 3  # steps before a graph is captured, as PyTorch advises

# Operations that make the host wait for values of the device, because the size of the result
# depends on them or a library reports to the host. CUDA graphs cannot contain such operations.
_WAITING = {
    "_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "bincount",
    "_unique", "_unique2", "unique_dim", "unique_consecutive",
    "_linalg_check_errors", "_linalg_eigh", "_linalg_eigvals", "linalg_eig", "_linalg_svd",
    "linalg_lstsq", "linalg_matrix_exp", "histc", "multinomial",
}  # fmt: skip
# Operations of cuSOLVER, cuBLAS or MAGMA whose results stay on the device. PyTorch chooses the
# library by the size of the matrices, and not every library allows a capture: it is simply tried.
_SOLVERS = {
    "linalg_cholesky_ex", "linalg_solve_triangular", "triangular_solve", "cholesky_solve",
    "cholesky_inverse", "_cholesky_solve_helper", "linalg_qr", "geqrf", "ormqr",
    "linalg_householder_product", "linalg_inv_ex", "_linalg_solve_ex", "linalg_lu_factor_ex",
    "linalg_lu", "linalg_lu_solve", "_linalg_det", "_linalg_slogdet", "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
}  # fmt: skip
_INDEXING = {
    "index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put",
}  # fmt: skip
# functions that make tensors of host values; dispatch modes do not see the copy to the device
_FROM_HOST = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}


class Recorded:
    """A function of a batch whose kernels are recorded once, and replayed at each call.

    On a CUDA device, the recording is a CUDA graph. On the CPU, nothing is recorded: each call
    copies the batch to the same memory and runs the function. Tests can thus use the class without
    a GPU. Random numbers depend on torch.manual_seed as usual.

    Raises:
        RuntimeError: If the capture fails. The current stream and the random number generator are
            then restored, and the memory of the capture is released.
    """

    def __init__(self, function: Callable[[Batch], Tensor], batch: Batch) -> None:
        copy = batch.map(lambda v: v.clone())
        self._memory = copy.tensors()
        if batch.a.device.type != "cuda":
            self._replay: Callable[[], Any] = lambda: function(copy)
            self._result = None
            return
        device = batch.a.device
        stream = torch.cuda.Stream()
        for _ in range(_WARM_UP):
            _on(stream, lambda: function(copy))
        self._result, self._replay = _captured(lambda: function(copy), stream, device)

    def __call__(self, batch: Batch) -> Tensor:
        for memory, values in zip(self._memory, batch.tensors(), strict=True):
            memory.copy_(values)
        result = self._replay()
        return result if self._result is None else self._result


class Repeated:
    """A function that changes tensors in place, recorded in its fourth call and then replayed.

    The first three calls run the function normally, to warm up. Additional warm-up runs are not
    possible, because every run changes the tensors. On the CPU, or if the capture fails, all calls
    run the function. The attribute `note` then contains the reason for the failure.
    """

    def __init__(self, function: Callable[[], None], device: torch.device) -> None:
        self.function, self.device, self.note, self._calls = function, device, "", 0
        self._replay: Callable[[], object] | None = None
        self._stream = torch.cuda.Stream() if device.type == "cuda" else None

    def __call__(self) -> None:
        if self._stream is None:
            self.function()
            return
        self._calls += 1
        if self._calls == _WARM_UP + 1:
            try:
                _, self._replay = _captured(self.function, self._stream, self.device)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                self.note = (str(error).strip() or type(error).__name__).splitlines()[0]
        if self._replay is None:
            _on(self._stream, self.function)
        else:
            self._replay()


def _on(stream: Any, function: Callable[[], object]) -> None:
    """Call a function on a stream. Libraries then initialise their state for this stream."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)


def _captured(
    function: Callable[[], Result], stream: Any, device: torch.device
) -> tuple[Result, Callable[[], None]]:
    """Capture a function as a CUDA graph, without launching its kernels."""
    graph = torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle() if torch.backends.cuda.is_built() else None
    try:
        # A capture that fails leaves its stream the current one; the outer context resets it.
        # Other threads may allocate memory meanwhile, for example to solve the next samples.
        with (
            torch.cuda.stream(stream),
            torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
        ):
            result = function()
    except BaseException:
        _undo(graph, pool, device)
        raise
    return result, graph.replay


def _undo(graph: Any, pool: Any, device: torch.device) -> None:
    """Release the memory pool and the graph of a failed capture; reset the random generator."""
    index = torch.cuda.current_device() if device.index is None else device.index
    version = tuple(map(int, str(torch.__version__).split(".")[:2]))
    with ExitStack() as stack:  # in reverse order; each runs even if another one fails
        stack.callback(_reset_generator, device, index)
        stack.callback(graph.reset)
        if pool is not None and version < (2, 14):
            stack.callback(torch._C._cuda_releasePool, index, pool)
            if version < (2, 13):
                names = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"
                end = next(getattr(torch._C, name) for name in names if hasattr(torch._C, name))
                stack.callback(end, index, pool)


def _reset_generator(device: torch.device, index: int) -> None:
    """Give the random generator of a device a new state."""
    fresh = torch.Generator(device)
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())


class Watch(TorchDispatchMode):
    """Collects the names of operations that prevent, or may prevent, the capture of a CUDA graph.

    Attributes:
        waits: Operations that make the host wait for values of the device, such as copies between
            host and device. They prevent a capture.
        solvers: Factorisations and linear solves by a library. They may prevent a capture.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: set[str] = set()
        self.solvers: set[str] = set()
        self._host_copies = _HostCopies(self.waits)

    def __enter__(self) -> Watch:
        self._host_copies.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self._host_copies.__exit__(*raised)

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in _WAITING:
            self.waits.add(name)
        if name in _SOLVERS:
            self.solvers.add(name)
        if name in _INDEXING:
            self.waits |= _waits_of_indexing(*args)
        if name == "repeat_interleave" and (kwargs or {}).get("output_size") is None:
            self.waits.add(
                name
            )  # repeats given by a tensor; a number dispatches to another operation
        if name == "normal" and func._overloadname.endswith("Tensor"):
            self.waits.add(name)  # checks its standard deviations
        result = func(*args, **(kwargs or {}))
        if name in ("_to_copy", "copy_"):
            devices = {v.device.type for v in (*args, result) if isinstance(v, Tensor)}
            if len(devices) > 1:
                self.waits.add("copy between devices")
        return result


def _waits_of_indexing(
    u: Tensor, indices: Iterable[Tensor | None], values: Tensor | None = None, *more: Any
) -> set[str]:
    """Reasons why u[indices] or u[indices] = values makes the host wait; empty if it does not."""
    given = [i for i in indices if i is not None]
    waits: set[str] = set()
    # assigning one host number at a mask is a masked fill, which only launches a kernel
    filled = values is not None and values.device.type == "cpu" and values.numel() == 1
    if any(i.dtype in (torch.bool, torch.uint8) for i in given) and not filled:
        waits.add("index by a mask")
    if any(i.device.type != u.device.type for i in given):
        waits.add("copy between devices")
    return waits


class _HostCopies(TorchFunctionMode):
    """Detects functions that create tensors on a device from host values."""

    def __init__(self, waits: set[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _FROM_HOST and result.device.type != "cpu":
            data = [*args, *(kwargs or {}).values()][func is Tensor.new_tensor]
            if not (isinstance(data, Tensor) and data.device == result.device):
                self.waits.add("copy between devices")
        return result


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
            the function gets these as its fourth argument. For a predictor of two phases,
            predictions are logits and targets are shares of the upper phase; for a `gaussian` one,
            predictions are (m, log s); for a `FlowPosterior`, both are velocities.
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
        phases, shared_y, shared_weight = predictor.phases, y, weight
        all_points = predictor.on(x, y, raw=True)
        at = {tuple(points.shape[:-1]): predictor.on(points, y, raw=True) for points in grids}
        flow = predictor.at(x, y) if isinstance(predictor, FlowPosterior) else None
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
                if flow is not None:
                    v, velocity = flow.matched(a, u)
                    return loss(v.to(u.dtype), velocity, a)
                channels = predictor.out_channels
                steps = u.shape[-1] // channels
                inputs, truth = task.noisy_inputs(a, channels, mask), u if forced else None
                predict = at.get(tuple(a.shape[1:-1]), all_points)
                prediction = predict(inputs, x, y, mask, steps, truth, weight).to(u.dtype)
            same_points = shared_y is None and y is None
            quadrature = weights(weight, mask if same_points else None, u)
            weighted = () if quadrature is None else (quadrature,)
            if phases is not None:
                return loss(prediction, phases.share(u), a, *weighted)
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
            on_cpu = batch.a.device.type == "cpu"
            (torch.default_generator if on_cpu else torch).manual_seed(seed)
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
        """Compile and record the step in the first call."""
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
        """Switch an acceleration off, and append the reason to `note`."""
        self.acceleration = replace(self.acceleration, **{name: False})
        # the end of a failed capture raises an error of its own, on top of the cause
        while isinstance(why, Exception) and isinstance(why.__context__, RuntimeError):
            why = why.__context__
        reason = (str(why).strip() or type(why).__name__).splitlines()[0] + more
        self.note = "; ".join(part for part in (self.note, f"{effect}: {reason}") if part)


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
