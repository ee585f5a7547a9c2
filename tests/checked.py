"""Checks of the shapes that annotations declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import jaxtyping

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
