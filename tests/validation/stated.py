"""Lines of text about stated errors of samples beside the true ones."""

from __future__ import annotations

import numpy as np


def comparison(stated: np.ndarray, true: np.ndarray) -> str:
    """The true errors of samples, and the quotients of stated and true errors.

    >>> comparison(np.array([1e-3, 3e-3]), np.array([1e-3, 1e-3]))  # doctest: +ELLIPSIS
    '2 samples, true error median 1.0e-03, ...; stated over true 1.00 to 3.00, median 2.00, ...'
    """
    ratio = stated / true
    within = np.mean((ratio > 0.5) & (ratio < 2))
    return (
        f"{len(ratio)} samples, true error median {np.median(true):.1e}, worst "
        f"{true.max():.1e}; stated over true {ratio.min():.2f} to {ratio.max():.2f}, median "
        f"{np.median(ratio):.2f}, {within:.0%} within a factor of 2"
    )
