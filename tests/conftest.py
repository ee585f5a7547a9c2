"""Shapes that annotations declare are checked at run time, here only."""

from __future__ import annotations

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# before the first import of what they name; modules of arrays alone, for beartype knows no `Self`
# outside classes that it decorates itself
install_import_hook(
    [
        "pdegen.grid",
        "pdegen.random_fields",
        "pdegen.spectral",
        "pdegen.etdrk",
        "pdegen.burgers",
        "pdegen.problem",
        "pdegen.store",
        "pdegen.generate",
        "operators",
    ],
    "beartype.beartype",
)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parents[1]
