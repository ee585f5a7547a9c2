"""What users' files register, in tests: it ends with the test, or as it were in another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pdegen import plugins
from pdegen.schema import known_keys


@contextmanager
def registered_alone() -> Iterator[None]:
    """What is registered inside ends with the block."""
    kept = {kind: dict(entries) for kind, entries in plugins._registries().items()}
    files = dict(plugins._files)
    yield
    for run in plugins._files.values():
        run.withdraw()
    plugins._files.clear()
    plugins._files.update(files)
    for kind, before in kept.items():
        now = plugins._registries()[kind]
        now.clear()
        now.update(before)
    known_keys.cache_clear()


def in_another_process() -> None:
    """Forget all files that were run."""
    for run in plugins._files.values():
        run.withdraw()
    plugins._files.clear()
    known_keys.cache_clear()
