"""Run-time checks of the shapes that annotations declare, off until a test asks for `shapes`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
from jaxtyping import config, install_import_hook

# modules of arrays alone, for beartype knows no `Self` outside classes that it decorates itself
MODULES = (
    "pdegen.domains",
    "pdegen.sampling.coefficients",
    "pdegen.sampling.gaussian",
    "pdegen.numerics.sines",
    "pdegen.numerics.spectral",
    "pdegen.equations.burgers.solver",
    "pdegen.equations.darcy.finite_element",
    "pdegen.equations.darcy.finite_volume",
    "pdegen.equations.darcy.published",
    "pdegen.inverse.classical",
    "operators",
)
_AN_INT_IS_A_FLOAT = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"

_jaxtyped = jaxtyping.jaxtyped
_made: set[CodeType] = set()


def jaxtyped(function: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """Add the checks, to a nested function only when its code is met first.

    The checks of a function take milliseconds to compile, which is longer than most nested
    functions run.

    >>> def outer(check):
    ...     def inner(n: int) -> int:
    ...         return n
    ...     return check(inner) is inner
    >>> check = jaxtyped(typechecker=lambda function: function)
    >>> outer(check), outer(check)
    (False, True)
    """
    if function is None:
        return partial(jaxtyped, typechecker=typechecker)
    if isinstance(function, FunctionType) and "<locals>" in function.__qualname__:
        code = inspect.unwrap(function).__code__
        if code in _made:
            return function
        _made.add(code)
    return _jaxtyped(function, typechecker=typechecker)


def install() -> None:
    """Decorate the functions of `MODULES` when they are imported."""
    jaxtyping.jaxtyped = jaxtyped  # what the hook decorates with
    install_import_hook(list(MODULES), _AN_INT_IS_A_FLOAT)
    config.update("jaxtyping_disable", True)
