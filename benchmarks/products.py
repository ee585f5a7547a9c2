"""Matrix products of a computation, run alone: a lower bound of its time.

Products, convolutions and softmax attention are recorded while the computation runs, forward and
backward, as they reach the library: shapes, strides and types of their operands. Run alone on
random values of the same layout, they take the time that would remain if everything else were free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from operators.data import Batch
from operators.nn import encoder, spectral  # noqa: F401 - they register operations
from operators.training.step import AS_WRITTEN, Acceleration, Recorded

_aten = torch.ops.aten
_FACTORS = {  # variants that write in place or to `out` are included
    _aten.mm, _aten.bmm, _aten.mv, _aten.addmm, _aten.addmv, _aten.baddbmm, _aten.addbmm,
    _aten.addmm_, _aten.addmv_, _aten.baddbmm_, _aten.addbmm_, _aten._addmm_activation,
    torch.ops.operators.exact_bmm,
}  # fmt: skip
_CONVOLUTIONS = {_aten.convolution, _aten.convolution_backward}
# scaled_dot_product_attention on the CPU: two products for each block of queries, five in the
# backward pass, with the exponentials between them
_ATTENTION = {
    _aten._scaled_dot_product_flash_attention_for_cpu: 2,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: 5,
}
_TRANSFORM = torch.ops.operators.transformed  # a product with a cached matrix
_NOTED = _FACTORS | _CONVOLUTIONS | _ATTENTION.keys() | {_TRANSFORM}
_CACHE = 2**27  # bytes of operands of one layout: more than a cache holds


@dataclass(frozen=True)
class Operand:
    """Layout of a tensor in memory; `written` if the product writes to it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    written: bool = False

    @classmethod
    def of(cls, tensor: Tensor, written: bool = False) -> Operand:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, written)

    @property
    def span(self) -> int:
        """Number of elements in memory from the first to the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int:
        """Bytes of distinct elements: those repeated by stride 0 count once."""
        distinct = (n for n, s in zip(self.shape, self.strides, strict=True) if s)
        return math.prod(distinct) * self.dtype.itemsize

    def random(self, device: torch.device) -> Tensor:
        """Random values in this layout."""
        values = torch.randn(self.span, dtype=self.dtype, device=device)
        return values.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class Product:
    """One call: a function of `torch.ops` and its arguments, with `Operand` in place of tensors.

    Args:
        flops: Number of operations on real numbers; a multiply-add counts 2.
        bytes: Bytes of all operands and of the result, each counted once.
    """

    function: Any
    arguments: tuple[Any, ...]
    layout: Any
    flops: int
    bytes: int

    @property
    def convolves(self) -> bool:
        return self.function.overloadpacket in _CONVOLUTIONS


class Products(TorchDispatchMode):
    """Context that records all products in `products`."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.overloadpacket in _NOTED:
            self.products.append(_product(func, args, kwargs, result))
        return result


def _product(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Product:
    written = {
        id(value)
        for declared, value in zip(function._schema.arguments, args, strict=False)
        if declared.alias_info is not None and declared.alias_info.is_write
    } | {id(value) for key, value in kwargs.items() if key == "out"}
    leaves, layout = tree_flatten((args, kwargs))
    arguments = tuple(
        Operand.of(leaf, id(leaf) in written) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    )
    results = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]
    operands = [
        operand for operand in arguments if isinstance(operand, Operand) and not operand.written
    ]
    return Product(
        function, arguments, layout, _flops(function, args, result),
        sum(operand.bytes for operand in operands) + sum(Operand.of(u).bytes for u in results),
    )  # fmt: skip


def _flops(function: Any, args: tuple[Any, ...], result: Any) -> int:
    kind = function.overloadpacket
    if kind == _aten.convolution:
        return 2 * result.numel() * args[1][0].numel()
    if kind == _aten.convolution_backward:
        gradients = sum(
            args[-1][:2]
        )  # whether the gradients of the input and of the weights are computed
        return gradients * 2 * args[0].numel() * args[2][0].numel()
    if kind == _TRANSFORM:
        return 2 * result.numel() * args[0].shape[1]
    if kind in _ATTENTION:
        q, k = args[:2] if _ATTENTION[kind] == 2 else args[1:3]
        return _ATTENTION[kind] * 2 * q.numel() * k.shape[-2]
    a, b = [value for value in args if isinstance(value, Tensor)][-2:]
    columns = b.shape[-1] if b.ndim > 1 else 1
    return (8 if a.is_complex() else 2) * a.numel() * columns


def products_of(computation: Callable[[], object]) -> list[Product]:
    """The products of one run of a computation."""
    with Products() as noted:
        computation()
    return noted.products


def alone(
    products: Sequence[Product], device: torch.device, acceleration: Acceleration = AS_WRITTEN
) -> Callable[[], object]:
    """Function that runs only these products, in order, on random values of the same layout.

    Args:
        products: The recorded products.
        device: Device to run on.
        acceleration: Precision of the products; `graphed` records them as one CUDA graph.
    """
    operands = _Operands(products, device)
    calls: list[Callable[[], Any]] = []
    for product in products:
        leaves = [operands.next(x) if isinstance(x, Operand) else x for x in product.arguments]
        args, kwargs = tree_unflatten(leaves, product.layout)
        calls.append(partial(product.function, *args, **kwargs))
    nothing = Batch(*torch.zeros(2, 1, 1, device=device))

    def run(unused: Batch) -> Tensor:
        for call in calls:
            call()
        return nothing.a

    recorded: list[Callable[..., Any]] = []

    @torch.no_grad()
    def in_this_precision() -> None:
        with acceleration.products():
            if not recorded:
                recorded.append(Recorded(run, nothing) if acceleration.graphed else run)
            recorded[0](nothing)

    return in_this_precision


class _Operands:
    """Random tensors of each layout, used in turns: one per operand, or enough to fill a cache."""

    def __init__(self, products: Sequence[Product], device: torch.device) -> None:
        counts = Counter(x for p in products for x in p.arguments if isinstance(x, Operand))
        self._made = {
            operand: [
                operand.random(device)
                for _ in range(min(count, 2 + _CACHE // max(1, operand.span * 8)))
            ]
            for operand, count in counts.items()
        }
        self._given: Counter[Operand] = Counter()

    def next(self, operand: Operand) -> Tensor:
        tensors = self._made[operand]
        self._given[operand] += 1
        return tensors[self._given[operand] % len(tensors)]


def counted(products: Sequence[Product]) -> dict[str, float]:
    """Number of products, their floating-point operations and bytes."""
    return {
        "products": len(products),
        "GFLOP": round(sum(p.flops for p in products) / 1e9, 3),
        "GB": round(sum(p.bytes for p in products) / 1e9, 4),
    }
