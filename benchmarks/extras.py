"""Import of optional libraries that only benchmarks need."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def needed(module: str, extra: str) -> ModuleType:
    """The module of an extra. If it is missing, exit with status 2 and one line of advice."""
    try:
        return import_module(module)
    except ImportError as error:
        print(f"{error}: pip install 'pdegen-operators[{extra}]'", file=sys.stderr)
        raise SystemExit(2) from None
