"""Vectors of eight float64 for compiled loops: the same quantity of eight samples.

In functions compiled by Numba, `load` and `store` read and write the vectors of an array by its
address, and `+`, `-`, `*` act on all eight numbers. LLVM maps a vector to the widest registers of
the processor. Sums are neither reordered nor contracted. So each number has the bits of the same
expression on scalars, on every processor, whatever the other seven numbers are.

Compiled functions call each other by address (`addressed`, `call`). Numba would otherwise compile a
function again within each function that calls it.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import llvmlite.ir as ir
import numba
import numpy as np
from numba.core import config, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from pdegen.numerics.compilation import address_of
from pdegen.numerics.errors import MissingSolverError
from pdegen.numerics.transforms import EIGHT

Compiler = Any  # what Numba and llvmlite pass to each other; they declare no types

LANES = EIGHT  # samples in a vector
_VERSION = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # of the operations below

_NUMBER, _INTEGER, _INDEX = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_NUMBER, LANES)
_METHODS = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul"}


def inline(function: Callable[..., Compiler]) -> Callable[..., Compiler]:
    """A function of a few sums, which is compiled as a part of its callers."""
    return numba.njit(inline="always")(function)


def _intrinsic(function: Callable[..., Compiler]) -> Callable[..., Compiler]:
    return intrinsic(function)


class Vector(types.Type):
    """The type of a vector in compiled functions. Such a value cannot be returned to Python."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


vector = Vector()


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Compiler, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, _VECTOR)


def _register(operation: Compiler, method: str) -> None:
    """Define an operation on two vectors, and on a number and a vector."""

    registered: Compiler = infer_global

    @registered(operation)
    class Template(ConcreteTemplate):  # pyright: ignore[reportUnusedClass]
        cases: ClassVar = [
            signature(vector, vector, vector), signature(vector, types.float64, vector),
        ]  # fmt: skip

    def of_vectors(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return getattr(builder, method)(*args)

    def of_number(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return getattr(builder, method)(_repeated(builder, args[0]), args[1])

    lower_builtin(operation, vector, vector)(of_vectors)
    lower_builtin(operation, types.float64, vector)(of_number)


for _operation, _method in _METHODS.items():
    _register(_operation, _method)


def _repeated(builder: Compiler, number: Compiler) -> Compiler:
    """The vector whose eight entries are the same number."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(_INDEX, 0))
    zeros = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def _element(builder: Compiler, kind: Compiler, address: Compiler, i: Compiler) -> Compiler:
    """The pointer to the i-th element of an array at an address."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [i])


@_intrinsic
def load(typingctx: Compiler, address: Compiler, i: Compiler) -> Compiler:
    """The i-th vector of the array at an address. Nothing is checked."""

    def codegen(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return builder.load(_element(builder, _VECTOR, *args), align=8)

    return vector(types.intp, types.intp), codegen


@_intrinsic
def store(typingctx: Compiler, address: Compiler, i: Compiler, value: Compiler) -> Compiler:
    """Write the i-th vector of the array at an address. Nothing is checked."""

    def codegen(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        builder.store(args[2], _element(builder, _VECTOR, *args[:2]), align=8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, vector), codegen


@_intrinsic
def number(typingctx: Compiler, address: Compiler, i: Compiler) -> Compiler:
    """The i-th number of the float64 array at an address."""

    def codegen(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return builder.load(_element(builder, _NUMBER, *args))

    return types.float64(types.intp, types.intp), codegen


@_intrinsic
def integer(typingctx: Compiler, address: Compiler, i: Compiler) -> Compiler:
    """The i-th number of the int64 array at an address."""

    def codegen(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return builder.load(_element(builder, _INTEGER, *args))

    return types.intp(types.intp, types.intp), codegen


@_intrinsic
def repeated(typingctx: Compiler, value: Compiler) -> Compiler:
    """The vector whose eight entries are the same number."""

    def codegen(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return _repeated(builder, args[0])

    return vector(types.float64), codegen


@_intrinsic
def call(typingctx: Compiler, function: Compiler, arguments: Compiler) -> Compiler:
    """Call the function of `addressed` at an address with a tuple of integers."""

    def codegen(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        values = [builder.extract_value(args[1], k) for k in range(len(sig.args[1]))]
        kind = ir.FunctionType(ir.VoidType(), [_INTEGER] * len(values))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.intp, arguments), codegen


def addressed(function: Callable[..., None]) -> int:
    """Compile a function of integers without a result; the address at which `call` finds it."""
    if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        raise MissingSolverError("time steps run in compiled code only: unset NUMBA_DISABLE_JIT")
    count = function.__code__.co_argcount
    return address_of(function, types.void(*[types.intp] * count), _VERSION)


def packed(values: np.ndarray) -> np.ndarray:
    """Rows of float64 or complex128 numbers as vectors, shape (blocks, vectors of a row, LANES).

    The real part of a complex number is one vector and the imaginary part the next. The last block
    is filled by copies of the first row.
    """
    rows, blocks = len(values), -(-len(values) // LANES)
    flat = np.ascontiguousarray(values).reshape(rows, -1)
    filled = np.empty((blocks * LANES, flat.shape[1]), values.dtype)
    filled[:rows], filled[rows:] = flat, flat[0]
    parts = filled.view(np.float64).reshape(blocks, LANES, -1)
    return np.ascontiguousarray(parts.transpose(0, 2, 1))


def unpacked(vectors: np.ndarray, rows: int, dtype: type) -> np.ndarray:
    """The inverse of `packed`: an array of shape (rows, numbers of a row)."""
    values = np.ascontiguousarray(vectors.transpose(0, 2, 1))
    return values.reshape(len(vectors) * LANES, -1)[:rows].view(dtype)
