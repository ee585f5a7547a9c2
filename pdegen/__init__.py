"""Trusted, chunked datasets of PDE solutions, made from recipes. Built on NumPy, SciPy, Zarr and
Dask.

>>> import pdegen
>>> "burgers-r10" in pdegen.recipes()
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdegen.version import __version__

if TYPE_CHECKING:
    from pdegen.api import generate, load_plugin, open, recipes, verify
    from pdegen.formats.importing import from_xarray

__all__ = ["__version__", "from_xarray", "generate", "load_plugin", "open", "recipes", "verify"]


def __getattr__(name: str) -> Any:
    """Import the public functions at their first use, so that commands start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "from_xarray":
        from pdegen.formats import importing

        return importing.from_xarray
    from pdegen import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
