"""What is kept in the folder of a run: predictions and mean target; and the keys of all that is."""

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
from operators.training.files import FileError, read, write
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.data import Source

PREDICTIONS, MEAN = "predictions.safetensors", "mean.safetensors"
KEPT_BYTES = 2**30  # of predictions; larger ones are made where they are needed
_HEADER, _DIGEST = "pdegen", "sha256"


def kept_predictions(
    folder: Path, checkpoint: Path, pairs: Samples, predict: Callable[[], Tensor], noise: str = ""
) -> Float[Tensor, "samples *grid c"]:
    """What a checkpoint predicts of all samples of `pairs`.

    Args:
        checkpoint: What predicts; another one makes what is kept stale.
        pairs: The samples, of noise that the experiment of the checkpoint declares.
        noise: Other noise of the samples, in words that tell one from another.
    """
    identity = {
        "checkpoint": checkpoint.stem,
        "weights": hashlib.sha256(read(checkpoint)).hexdigest(),
        "data": json.dumps({k: v for k, v in pairs.source.items() if k != "url"}, sort_keys=True),
        "samples": hashlib.sha256(pairs.samples.tobytes()).hexdigest(),
        **({"noise": noise} if noise else {}),
    }
    return _kept(folder / PREDICTIONS, identity, predict)


def kept_mean(folder: Path, source: Source) -> Tensor:
    """The mean function of the training targets, in float64, shape (*grid, c)."""
    identity = {"made_from": target_key(source.experiment, source.url)}
    return _kept(folder / MEAN, identity, lambda: mean_target(source.samples("train", noise=None)))


def mean_target(pairs: Samples) -> Float[Tensor, "*grid c"]:
    """Mean of all targets at each point, in float64, read once."""
    targets = pairs.targets
    blocks = [targets] if isinstance(targets, Tensor) else targets
    total, count = torch.zeros((), dtype=torch.float64), 0
    for block in blocks:
        total = total + block.sum(dim=0, dtype=torch.float64).cpu()
        count += len(block)
    return total / count


def _kept(path: Path, identity: Mapping[str, str], make: Callable[[], Tensor]) -> Tensor:
    """A tensor from its file; made where that is absent, damaged, or of another identity."""
    found = _read(path, identity)
    if found is None:
        found = make().detach().cpu().contiguous()
        header = {**identity, _DIGEST: _digest(found)}
        write(path, bytes_of({"values": found}, {_HEADER: json.dumps(header)}))
    return found


def _read(path: Path, identity: Mapping[str, str]) -> Tensor | None:
    try:
        data = read(path)
        values = tensors_of(data)["values"]
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_HEADER])
    except (FileNotFoundError, FileError, SafetensorError, ValueError, KeyError, TypeError):
        return None
    return values if header == {**identity, _DIGEST: _digest(values)} else None


def _digest(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()


def key_of(store: str, **parts: object) -> str:
    """The key of what is computed from a store.

    Args:
        parts: All else that determines the result, as JSON has it.
    """
    said = open_sealed(store).metadata
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
