"""Libraries that only a benchmark needs, each an extra of the project."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def needed(module: str, extra: str) -> ModuleType:
    """The module of an extra. Where it is missing the program ends: one line, exit status 2."""
    try:
        return import_module(module)
    except ImportError as error:
        print(f"{error}: pip install 'pdegen-operators[{extra}]'", file=sys.stderr)
        raise SystemExit(2) from None
