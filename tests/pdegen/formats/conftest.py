"""Readers in a fork of this process, for tests of what they find; the others start the child."""

import faulthandler
import gc
import importlib
import json
import os
from importlib.util import find_spec

import pytest

from pdegen.formats import sandbox
from tests.absent import absent


@pytest.fixture(autouse=True)
def _has_the_package_of_its_format(request):
    """Parquet files need pyarrow, an extra."""
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if parameters.get("format") == "huggingface" and find_spec("pyarrow") is None:
        absent("pyarrow is missing: make test installs it")


@pytest.fixture
def forked(monkeypatch):
    """Readers run in a fork, which saves the start of a process and PyTorch's import."""

    def asked(request):
        importlib.import_module(sandbox.module_of(request))
        target = request.target()
        child = os.fork()
        if child == 0:
            gc.disable()  # to look for garbage would copy every page of the parent
            faulthandler.disable()  # some files crash their reader
            try:
                target.write_text(json.dumps(sandbox.answered(request)))
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return json.loads(target.read_text()) if status == 0 else {"error": f"ended by {status}"}

    monkeypatch.setattr(sandbox, "_answer", asked)
