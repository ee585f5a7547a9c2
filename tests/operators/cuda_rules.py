"""Half precision as on a GPU, on a machine without one.

`autocast_of_cuda` gives PyTorch's autocast of the processor the rules that it has for CUDA: which
operations are cast down, which are cast up, which to the widest of their inputs. They are read from
the header of the installed version, which declares them for all devices. `Kernels` refuses the
operations for which CUDA has no kernel in bf16, most of which the processor has.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, fallthrough_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
_HALF = torch.bfloat16
_KEY = torch._C.DispatchKey.AutocastCPU
# refused for bf16: Fourier transforms, complex numbers of it, factorisations, solves, distances
NO_KERNELS = {
    "_fft_r2c", "_fft_c2r", "_fft_c2c", "complex", "polar", "view_as_complex",
    "linalg_cholesky_ex", "cholesky_inverse", "_cholesky_solve_helper", "linalg_qr", "geqrf",
    "ormqr", "linalg_householder_product", "linalg_solve_triangular", "triangular_solve",
    "linalg_lu_factor_ex", "linalg_lu", "linalg_lu_solve", "linalg_inv_ex", "_linalg_solve_ex",
    "linalg_ldl_factor_ex", "linalg_ldl_solve", "_linalg_det", "_linalg_slogdet", "_linalg_eigh",
    "_linalg_eigvals", "linalg_eig", "_linalg_svd", "linalg_lstsq", "linalg_matrix_exp",
    "_cdist_forward", "_cdist_backward", "_pdist_forward", "igamma", "igammac",
}  # fmt: skip


def rules() -> dict[str, str]:
    """The rule of each operation, by its name and overload: "lower", "float32", "dtype" (sums are
    in float32), "widest"."""
    text, found = _HEADER.read_text(), dict[str, str]()
    for macro, rule in (
        ("LOWER_PRECISION_FP", "lower"), ("FP32", "float32"), ("FP32_SET_OPT_DTYPE", "dtype"),
        ("PROMOTE", "widest"),
    ):  # fmt: skip
        body = re.search(rf"#define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*\n)", text)
        assert body is not None, macro
        for name, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body[1]):
            found[f"{name}.{overload}" if overload else name] = rule
    return found


def _cast(values: Any, to: torch.dtype) -> Any:
    """All tensors of floating-point numbers but those of float64, as autocast has it."""

    def cast(v: Any) -> Any:
        if isinstance(v, Tensor) and v.is_floating_point() and v.dtype != torch.float64:
            return v.to(to)
        return v

    return tree_map(cast, values)


def _kernel(op: Any, rule: str) -> Callable[..., Any]:
    """Replacement of an operation by autocast."""
    names = [argument.name for argument in op._schema.arguments]

    def call(*args: Any, **kwargs: Any) -> Any:
        # as in PyTorch: casts too are without autocast
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            if rule == "dtype":
                given = dict(zip(names, args, strict=False)) | kwargs
                if given.get("dtype") is None and given[names[0]].is_floating_point():
                    given["dtype"] = torch.promote_types(given[names[0]].dtype, torch.float32)
                return op(**given)
            to = _HALF if rule == "lower" else torch.float32
            if rule == "widest":
                floats = [v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)]
                floats = [v for v in floats if v.is_floating_point()]
                to = torch.float32 if any(v.dtype == torch.float32 for v in floats) else _HALF
            args, kwargs = _cast((args, kwargs), to)
            return op(*args, **kwargs)

    return call


@contextmanager
def autocast_of_cuda() -> Iterator[None]:
    """`torch.autocast("cpu", ...)` has CUDA's rules within."""
    library = Library("aten", "IMPL")
    packets, kept = torch.ops.aten, set[str]()
    with warnings.catch_warnings():  # that kernels are replaced, as is meant
        warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel")
        for name, rule in rules().items():
            packet, overload = (*name.split("."), "default")[:2]
            if hasattr(packets, packet) and hasattr(getattr(packets, packet), overload):
                op = getattr(getattr(packets, packet), overload)
                library.impl(name, _kernel(op, rule), _KEY.name)
                kept.add(f"aten::{name}")
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(_KEY.name):
            if name not in kept:
                library.impl(name.removeprefix("aten::"), fallthrough_kernel, _KEY.name)
    try:
        yield
    finally:
        library._destroy()


class Kernels(TorchDispatchMode):
    """Refuses, in half precision, the operations that CUDA has no kernel for."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        leaves = tree_leaves((args, kwargs or {}))
        if name in NO_KERNELS and any(isinstance(v, Tensor) and v.dtype == _HALF for v in leaves):
            raise RuntimeError(f"{name}: CUDA has no kernel for bf16")
        return func(*args, **(kwargs or {}))


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Half precision as on a GPU."""
    with autocast_of_cuda(), Kernels():
        yield


in_half = partial(torch.autocast, "cpu", _HALF)
