"""What a file was made from: the keys that files record, and their comparison.

The entry `made_from` of a file is the SHA-256 of all that determines its content. Whoever reads the
file computes the key again and compares it.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operators.plugins import digests_of
from pdegen.files import DamagedError

MADE_FROM = "made_from"
# entries of run.json and of the headers of checkpoints that determine a training
_DECLARED = ("experiment", "data", "start", "reading", "precision", "compiled", "processes")
_log = logging.getLogger(__name__)


class ForeignError(DamagedError):
    """A file was made from other data, settings, weights or plugins than its place says. The
    message is one line."""


def key_of(**parts: object) -> str:
    """SHA-256 of named parts, which are JSON values. All keys of files are made here.

    >>> key_of(seed=1, store="a") == key_of(store="a", seed=1) != key_of(seed=1, store="b")
    True
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def training_key(record: Mapping[str, Any]) -> str:
    """Key of a training: its experiment, its data, the contents of its plugins, and how it runs.

    Args:
        record: Content of run.json, or the description of a checkpoint of the training.
    """
    declared = {name: record[name] for name in _DECLARED if name in record}
    return key_of(**declared, plugins=digests_of(record))


def check_made_from(path: Path, recorded: object, key: object) -> None:
    """Compare what a file records as the key of its content with the key that it must have.

    Files of earlier versions record no key. They are accepted with a warning.

    Args:
        path: Path of the file, for messages.
        recorded: The recorded key; None if there is none.
        key: The expected key.

    Raises:
        ForeignError: If the keys differ.
    """
    if recorded is None:
        _log.warning("%s does not say what it was made from, like files of earlier versions", path)
    elif recorded != key:
        raise ForeignError(
            f"{path} belongs to another result: it was made from other data, settings, weights or "
            "plugins"
        )
