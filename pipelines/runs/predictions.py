"""Caches predictions and the mean target in the folder of a run, and computes keys of results."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from operators.data import Samples
from operators.training.identity import MADE_FROM, check_made_from, key_of
from pdegen.files import FileError, read, write
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.data import Source
from pipelines.runs.plugins import plugins_of

PREDICTIONS, MEAN = "predictions.safetensors", "mean.safetensors"
KEPT_BYTES = 2**30  # predictions larger than this are not stored
_HEADER, _DIGEST = "pdegen", "sha256"


def kept_predictions(
    folder: Path, checkpoint: Path, pairs: Samples, predict: Callable[[], Tensor], noise: str = ""
) -> Float[Tensor, "samples *grid c"]:
    """Predictions of a checkpoint for all samples of `pairs`.

    They are read from a cache file if the file is up to date. Otherwise they are computed and
    written to the file.

    Args:
        folder: Folder of the cache file.
        checkpoint: The checkpoint; if its weights have changed, the cache is stale.
        pairs: The samples.
        predict: Computes the predictions.
        noise: Unique description of the noise on the inputs, if it differs from the experiment's
            noise.
    """
    identity = {
        "checkpoint": checkpoint.stem,
        "weights": weights_of(checkpoint),
        "data": json.dumps({k: v for k, v in pairs.source.items() if k != "url"}, sort_keys=True),
        "samples": hashlib.sha256(pairs.ids.tobytes()).hexdigest(),
        **({"noise": noise} if noise else {}),
    }
    return _kept(folder / PREDICTIONS, identity, predict)


def weights_of(checkpoint: Path) -> str:
    """SHA-256 of a checkpoint file: its weights, and the description of their training."""
    return hashlib.sha256(read(checkpoint)).hexdigest()


def kept_mean(folder: Path, source: Source) -> Tensor:
    """Mean function of the training targets in float64, shape (*grid, c). It is read from a cache
    file if the file is up to date; otherwise it is computed and written to the file."""
    identity = {MADE_FROM: target_key(source.experiment, source.store)}
    return _kept(folder / MEAN, identity, lambda: mean_target(source.samples("train", noise=None)))


def mean_target(pairs: Samples) -> Float[Tensor, "*grid c"]:
    """Mean of all targets at each point, in float64. Each block of samples is read once."""
    targets = pairs.targets
    blocks = [targets] if isinstance(targets, Tensor) else targets
    total, count = torch.zeros((), dtype=torch.float64), 0
    for block in blocks:
        total = total + block.sum(dim=0, dtype=torch.float64).cpu()
        count += len(block)
    return total / count


def _kept(path: Path, identity: Mapping[str, str], make: Callable[[], Tensor]) -> Tensor:
    """The tensor in a cache file."""
    values = _read(path, identity)
    if values is None:
        values = make().detach().cpu().contiguous()
        header = {**identity, _DIGEST: _digest(values)}
        write(path, bytes_of({"values": values}, {_HEADER: json.dumps(header)}))
    return values


def _read(path: Path, identity: Mapping[str, str]) -> Tensor | None:
    try:
        data = read(path)
        values = tensors_of(data)["values"]
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_HEADER])
        check_made_from(path, header, {**identity, _DIGEST: _digest(values)})
    except (FileNotFoundError, FileError, SafetensorError, ValueError, KeyError, TypeError):
        return None
    return values


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()


def store_key(store: str | Store, **parts: object) -> str:
    """Key of a result that is computed from a store.

    Args:
        store: The store, or its URL.
        parts: Everything else that determines the result, as JSON values.
    """
    metadata = open_sealed(store).metadata
    return key_of(content=metadata.content, fingerprint=metadata.fingerprint, **parts)


def experiment_key(experiment: Experiment, store: str | Store, **parts: object) -> str:
    """Cache key of a result that depends on all values of an experiment and on the contents of the
    files that it names."""
    declared = experiment.model_dump(mode="json")
    return store_key(store, experiment=declared, files=files_of(experiment), **parts)


def target_key(experiment: Experiment, store: str | Store) -> str:
    """Cache key of a result that depends only on the training targets."""
    declared = experiment.model_dump(mode="json", include={"data", "task"})
    declared["data"].pop("reading")  # reading depends on free memory and changes no values
    return store_key(store, **declared)


def files_of(experiment: Experiment) -> dict[str, str]:
    """SHA-256 digests of the files that an experiment names or needs, except its store."""
    digests = {kind: file["sha256"] for kind, file in plugins_of(experiment).items()}
    start = experiment.training.start
    stream = experiment.data.stream
    if start is not None and Path(start).is_file():
        digests["start"] = hashlib.sha256(read(Path(start))).hexdigest()
    if stream is not None:
        digests["stream"] = stream.load_recipe().fingerprint
    return digests
