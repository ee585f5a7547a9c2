"""Kernels that PyTorch would launch on a CUDA device, counted without one from tensors on "meta".

The rule: every dispatched aten operation counts as CUDA runs it in float32, neither compiled nor
recorded.

* Views, allocations and changes of requires_grad are 0 kernels.
* Every other operation is 1 kernel, which reads each argument and writes each result once. The
  exceptions follow.
* Products that add to their result out of place (addmm, baddbmm) are a copy and a product. A 1-D
  bias of addmm is added by cuBLASLt, without a copy. An operand with strides that cuBLAS does not
  take is copied first.
* A convolution is 1, and 1 more with a bias; its backward is 1 per gradient. The backward of batch,
  group and layer norms is 1 for the input and 1 for all weights.
* Operations that fill a result and then write a part are 2: backward of slices, selections,
  diagonals and interpolations; padding; eye. So are masked_fill, index_put, scatter and index_add
  out of place.
* Operations on lists (`torch._foreach_*`, fused Adam) are cut as by `multi_tensor_apply`: chunks of
  65,536 numbers, 320 chunks a launch, and 110, 64, 48, 36 or 30 tensors a launch for 1 to 5 lists.
  If strides or dtypes differ among the lists, each tensor is 1. `_foreach_norm` has 2 more.
* Fused attention and dropout are 1, and 1 backward. Operations of this project are their parts.
* A factorisation (QR, eigenvectors, Cholesky) is 1 library call, whatever it launches.

Copies to the device and fills are launches. A sum is 1, though some devices take several passes.
Bytes count expanded dimensions once and ignore caches. Floating-point operations of matrix
products, attention and convolutions follow from their shapes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._foreach_utils import (
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

META = torch.device("meta")
_CHUNK, _CHUNKS, _TENSORS = 65_536, 320, (110, 64, 48, 36, 30)
_FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias",
    "lift_fresh", "record_stream", "set_", "resize_", "_unsafe_view", "_reshape_alias",
}  # fmt: skip
_FILLED = {
    "slice_backward", "select_backward", "diagonal_backward", "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward", "max_pool2d_with_indices_backward", "unfold_backward",
    "constant_pad_nd", "eye", "masked_fill", "index_put", "scatter", "scatter_add", "index_add",
    "index_fill", "native_group_norm",
}  # fmt: skip
_PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "addmm": 1,
    "baddbmm": 1,
    "addmm_": 1,
    "baddbmm_": 1,
}  # first operand
_GRADIENTS = {
    "native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
    "cudnn_batch_norm_backward",
}  # fmt: skip


@dataclass
class Work:
    """The work of a step on a device.

    Args:
        launches: Number of kernels by the name of their operation.
        read, written: Number of bytes read and written.
        flops: Floating-point operations of matrix products, attention and convolutions.
    """

    launches: Counter[str] = field(default_factory=Counter)
    read: int = 0
    written: int = 0
    flops: int = 0

    @property
    def kernels(self) -> int:
        return self.launches.total()

    @property
    def bytes(self) -> int:
        return self.read + self.written


class Launches(TorchDispatchMode):
    """Counts the kernels of operations on "meta" tensors in `work`, by the rule of this module."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "operators":
            with self:
                return _body(func)(*args, **kwargs)
        if func.overloadpacket.__name__ == "equal":  # "meta" has no values: assume equal points
            return True
        result = func(*args, **kwargs)
        self._count(func, args, kwargs, result)
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name, given = func.overloadpacket.__name__, tensors((args, kwargs))
        results = tensors(result)
        if not any(v.device == META for v in (*given, *results)):
            return
        changed = _changed(func, args, kwargs)
        places = {v.untyped_storage()._cdata for v in given}
        fresh = [v for v in results if v.untyped_storage()._cdata not in places]
        if name in _FREE or not (fresh or changed):
            return
        read = sum(map(stored, given)) - (
            sum(map(stored, changed)) if name in ("copy_", "fill_", "zero_") else 0
        )
        written = sum(map(stored, [*fresh, *changed]))
        if name.startswith(("_foreach", "_fused")):
            launches = _of_lists(name, args, fresh)
        elif name in _PRODUCTS:
            launches, copied = _of_product(name, args)
            read, written = read + copied, written + copied
        elif name == "convolution":
            launches = 1 + (args[2] is not None)
        elif name == "convolution_backward":
            launches = sum(args[-1])
        elif name in _GRADIENTS:
            launches = args[-1][0] + any(args[-1][1:])
        else:
            launches = 2 if name in _FILLED else 1
        self.work.launches[name] += launches
        self.work.read += read
        self.work.written += written
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.work.flops += formula(*args, **kwargs, out_val=result)
        elif name in ("addmm_", "baddbmm_"):
            self.work.flops += 2 * math.prod(args[1].shape) * args[2].shape[-1]


class Fused(TorchFunctionMode):
    """Runs attention and dropout on "meta" as one kernel each, as CUDA does in float32."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func is nn.functional.dropout:
            return _dropout(*args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(
                ~attn_mask, -math.inf
            )
        attn_mask = attn_mask.expand(*q.shape[:3], k.shape[2])
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    return run(q, k, v, attn_mask, q.requires_grad, dropout_p, is_causal, scale=scale)[0]


def _dropout(u: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(u, p, True)[0] if training and 0 < p < 1 else u


@contextmanager
def counted() -> Iterator[Work]:
    """Context that counts the work of operations on "meta" tensors."""
    names = "_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"
    supported = _get_foreach_kernels_supported_devices, _get_fused_kernels_supported_devices
    with ExitStack() as stack:
        for name, devices in zip(names, supported, strict=True):  # "meta" stands for CUDA
            for module in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
                stack.enter_context(patch(f"{module}.{name}", _with_meta(devices)))
        # "meta" has no autocast: counted steps are in float32
        stack.enter_context(patch("torch.autocast", lambda *words, **more: nullcontext()))
        stack.enter_context(Fused())
        yield stack.enter_context(Launches()).work


def _with_meta(devices: Callable[[], list[str]]) -> Callable[[], list[str]]:
    supported = [*devices(), "meta"]
    return lambda: supported


def tensors(values: Any) -> list[Tensor]:
    """All tensors in nested values, each once."""
    return list({id(v): v for v in tree_leaves(values) if isinstance(v, Tensor)}.values())


def stored(v: Tensor) -> int:
    """Bytes of the distinct elements of a tensor: an expanded dimension counts once."""
    sizes = zip(v.shape, v.stride(), strict=True)
    return v.element_size() * math.prod(n for n, stride in sizes if stride or not n)


def _body(func: Any) -> Callable[..., Any]:
    """The Python function that implements an operation of the project."""
    from operators.nn import encoder as fused
    from operators.nn import spectral

    classes = {"transformed": spectral._exact_product, "exact_bmm": fused._exact_bmm}
    return classes[func.overloadpacket.__name__]._init_fn


def _changed(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Tensor arguments that an operation writes to."""
    arguments: list[Any] = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            arguments.append(args[number] if number < len(args) else kwargs.get(argument.name))
    return tensors(arguments)


def _of_product(name: str, args: Any) -> tuple[int, int]:
    """Number of launches of a matrix product, and bytes copied for it."""
    first = _PRODUCTS[name]
    operands = [v for v in args[first : first + 2] if not _usable(v)]
    copied = sum(map(stored, operands))
    launches = 1 + len(operands)
    if name in ("addmm", "baddbmm"):
        m, n = args[1].shape[-2], args[2].shape[-1]
        epilogue = name == "addmm" and args[0].shape == (n,) and m > 1 and n > 1
        if not epilogue:
            launches += 1
            copied += 4 * math.prod([*args[1].shape[:-1], n])
    return launches, copied


def _usable(v: Tensor) -> bool:
    """Whether cuBLAS takes a matrix without a copy: its rows or its columns are contiguous."""
    (m, n), (rows, columns) = v.shape[-2:], v.stride()[-2:]
    return (columns == 1 and rows >= max(1, n)) or (rows == 1 and columns >= max(1, m))


def _layout(v: Tensor) -> tuple[tuple[int, int], ...]:
    """Sizes and strides; the stride of a dimension of size 1 is ignored."""
    return tuple(
        (n, stride if n != 1 else 0) for n, stride in zip(v.shape, v.stride(), strict=True)
    )


def _of_lists(name: str, args: Any, fresh: Sequence[Tensor]) -> int:
    """Number of launches of an operation on lists of tensors."""
    lists = [v for v in args if isinstance(v, (list, tuple)) and v and isinstance(v[0], Tensor)]
    fused = name.startswith("_fused")  # of parameters, gradients and two moments, laid out alike
    if fused:
        lists = lists[:4]
    elif not name.endswith("_") and name != "_foreach_norm":
        lists.append(list(fresh))
    alike = len({v.dtype for items in lists for v in items}) == 1 and all(
        len({_layout(v) for v in each}) == 1 for each in zip(*lists, strict=True)
    )
    if not (alike or fused):
        return len(lists[0])
    most, launches, chunks, count = _TENSORS[len(lists) - 1], 0, 0, 0
    for number, v in enumerate(lists[0]):
        count += bool(v.numel())
        parts = -(-v.numel() // _CHUNK)
        for part in range(parts):
            chunks += 1
            full = count == most and part == parts - 1
            if full or chunks == _CHUNKS or (number == len(lists[0]) - 1 and part == parts - 1):
                launches += 1
                chunks, count = 0, int(part < parts - 1)
    return launches + 2 * (name == "_foreach_norm")
