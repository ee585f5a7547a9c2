"""A cache of tensors that depend on sizes only."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor


def cached(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function `make`, which computes each result once and keeps it for the whole process.

    The tensors are made outside of `torch.inference_mode`, even if the first call is inside.
    Otherwise no later training could use them.

    >>> ones = cached(torch.ones)
    >>> with torch.inference_mode():
    ...     u = ones(3)
    >>> u.is_inference(), ones(3) is u
    (False, True)
    """

    @cache
    @wraps(make)
    def made(*arguments: Any) -> Tensor:
        with torch.inference_mode(False):
            return make(*arguments)

    return made
