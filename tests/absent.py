"""Skips of tests that need software which the machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip a test that needs absent software; fail if CI=true, which has everything."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(what)
