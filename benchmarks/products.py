"""The matrix products of a computation, run alone: the floor below which none of its kind gets.

Products and convolutions are noted while the computation runs, in both directions, as they reach
the library that does them: by shapes, strides and types of what is multiplied. Run alone on other
values of the same layout they take the time that is left if all else were free.
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
from operators.nn import fused, spectral  # noqa: F401 - they register operations
from operators.training.recording import Recorded
from operators.training.step import AS_WRITTEN, Acceleration

_aten = torch.ops.aten
_FACTORS = {  # and with them those that write in place, or to `out`
    _aten.mm, _aten.bmm, _aten.mv, _aten.addmm, _aten.addmv, _aten.baddbmm, _aten.addbmm,
    _aten.addmm_, _aten.addmv_, _aten.baddbmm_, _aten.addbmm_, _aten._addmm_activation,
    torch.ops.operators.exact_bmm,
}  # fmt: skip
_CONVOLUTIONS = {_aten.convolution, _aten.convolution_backward}
_TRANSFORM = torch.ops.operators.transformed  # a product with a matrix that it keeps
_NOTED = _FACTORS | _CONVOLUTIONS | {_TRANSFORM}
_CACHE = 2**27  # bytes of operands of one kind: more than caches hold, so that they are cold


@dataclass(frozen=True)
class Operand:
    """How a tensor lies in memory; `written` where the product writes to it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    written: bool = False

    @classmethod
    def of(cls, tensor: Tensor, written: bool = False) -> Operand:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, written)

    @property
    def span(self) -> int:
        """Elements from the first to the last in memory."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int:
        """Of distinct elements: repeated ones, of stride 0, count once."""
        distinct = (n for n, s in zip(self.shape, self.strides, strict=True) if s)
        return math.prod(distinct) * self.dtype.itemsize

    def made(self, device: torch.device) -> Tensor:
        """Random values in this layout."""
        values = torch.randn(self.span, dtype=self.dtype, device=device)
        return values.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class Product:
    """One call: a function of `torch.ops` and its arguments, with `Operand` in place of tensors.

    Args:
        flops: Of real numbers, a sum of products counting 2 for each.
        bytes: Of all operands and the result, each once.
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
    """Notes all products that run under it, in `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Product] = []

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
            self.found.append(_product(func, args, kwargs, result))
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
    operands = [one for one in arguments if isinstance(one, Operand) and not one.written]
    return Product(
        function, arguments, layout, _flops(function, args, result),
        sum(one.bytes for one in operands) + sum(Operand.of(one).bytes for one in results),
    )  # fmt: skip


def _flops(function: Any, args: tuple[Any, ...], result: Any) -> int:
    kind = function.overloadpacket
    if kind == _aten.convolution:
        return 2 * result.numel() * args[1][0].numel()
    if kind == _aten.convolution_backward:
        asked = sum(args[-1][:2])  # of the gradients of the input and of the weights
        return asked * 2 * args[0].numel() * args[2][0].numel()
    if kind == _TRANSFORM:
        return 2 * result.numel() * args[0].shape[1]
    a, b = [value for value in args if isinstance(value, Tensor)][-2:]
    columns = b.shape[-1] if b.ndim > 1 else 1
    return (8 if a.is_complex() else 2) * a.numel() * columns


def products_of(computation: Callable[[], object]) -> list[Product]:
    """The products of one run."""
    with Products() as products:
        computation()
    return products.found


def alone(
    products: Sequence[Product], device: torch.device, acceleration: Acceleration = AS_WRITTEN
) -> Callable[[], object]:
    """Runs products one after another, and nothing else, on random values in the same layout.

    Args:
        products: As noted.
        device: Where.
        acceleration: Its precision; `graphed` records them as one CUDA graph.
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
    """Tensors in turns: of each layout as many as are asked for, or as leave a cache."""

    def __init__(self, products: Sequence[Product], device: torch.device) -> None:
        asked = Counter(x for p in products for x in p.arguments if isinstance(x, Operand))
        self._made = {
            operand: [
                operand.made(device)
                for _ in range(min(count, 2 + _CACHE // max(1, operand.span * 8)))
            ]
            for operand, count in asked.items()
        }
        self._given: Counter[Operand] = Counter()

    def next(self, operand: Operand) -> Tensor:
        made = self._made[operand]
        self._given[operand] += 1
        return made[self._given[operand] % len(made)]


def counted(products: Sequence[Product]) -> dict[str, float]:
    """How many they are, their operations and bytes."""
    return {
        "products": len(products),
        "GFLOP": round(sum(p.flops for p in products) / 1e9, 3),
        "GB": round(sum(p.bytes for p in products) / 1e9, 4),
    }
