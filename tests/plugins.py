"""What users' files register, in tests: it ends with the test, or as it were in another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pdegen import plugins
from pdegen.schema import known_keys


@contextmanager
def registered_alone() -> Iterator[None]:
    """What a file or a test registers inside ends with the block; classes of the project stay."""
    kept = {kind: dict(entries) for kind, entries in plugins._registries().items()}
    files = dict(plugins._files)
    yield
    for run in plugins._files.values():
        run.withdraw()
    plugins._files.clear()
    plugins._files.update(files)
    for kind, now in plugins._registries().items():
        before = kept.get(kind, {})
        for name, entry in list(now.items()):
            if not plugins._class(entry).__module__.startswith(plugins._SHIPPED):
                del now[name]
        now.update(before)
    known_keys.cache_clear()


def in_another_process() -> None:
    """Forget all files that were run."""
    for run in plugins._files.values():
        run.withdraw()
    plugins._files.clear()
    known_keys.cache_clear()
