"""Keys of what is kept: digests of all that a result is computed from."""

import hashlib
import json
from pathlib import Path

from operators.training.files import read
from pdegen.store.reading import open_sealed
from pipelines.declared.experiment import Experiment


def key_of(store: str, **parts: object) -> str:
    """The key of what is computed from a store.

    Args:
        parts: All else that determines the result, as JSON has it.
    """
    said = open_sealed(store).said
    whole = {"content": said.content, "fingerprint": said.fingerprint, **parts}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def experiment_key(experiment: Experiment, store: str, **parts: object) -> str:
    """The key of what is computed from all of an experiment, and the files that it names."""
    declared = experiment.model_dump(mode="json")
    return key_of(store, experiment=declared, files=_files(experiment), **parts)


def target_key(experiment: Experiment, store: str) -> str:
    """The key of what is computed from the training targets alone, whatever learns them."""
    declared = experiment.model_dump(mode="json", include={"data", "task"})
    declared["data"].pop("reading")  # how they are read is for the memory that is free
    return key_of(store, **declared)


def _files(experiment: Experiment) -> dict[str, str]:
    """Digests of what the files hold that an experiment names, beside its store."""
    found, start, stream = dict[str, str](), experiment.training.start, experiment.data.stream
    if start is not None and Path(start).is_file():
        found["start"] = hashlib.sha256(read(Path(start))).hexdigest()
    if stream is not None:
        found["stream"] = stream.load_recipe().fingerprint
    return found
