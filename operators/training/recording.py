"""Recording of a training step as a CUDA graph.

The module also detects operations that prevent a recording, and cleans up after a failed capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from operators.data import Batch
from operators.training.memory import is_out_of_memory

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
    """Capture a function as a CUDA graph, without launching its kernels.

    Returns:
        The result of the function, and a function that launches the kernels on the same memory.
    """
    graph, pool = torch.cuda.CUDAGraph(), _new_pool()
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


def _new_pool() -> Any:
    """Handle of a new memory pool for a capture; None if PyTorch was built without CUDA."""
    return torch.cuda.graph_pool_handle() if torch.backends.cuda.is_built() else None


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
                stack.callback(_end_allocation(), index, pool)


def _end_allocation() -> Callable[[int, Any], None]:
    """PyTorch's function that ends allocation from the memory pool of a capture.

    The function was renamed after version 2.6.
    """
    names = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"
    return next(getattr(torch._C, name) for name in names if hasattr(torch._C, name))


def _reset_generator(device: torch.device, index: int) -> None:
    """Give the random generator of a device a new state.

    After a failed capture, the old state still belongs to the capture.
    """
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
