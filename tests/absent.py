"""What a machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip a test that needs it; where CI=true, which has everything, the test fails."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)
