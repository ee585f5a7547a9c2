"""A trained predictor in one file: weights and normalisers as safetensors, the rest as JSON in its
header; and the state of a training. Both carry the SHA-256 of their bytes; loading executes
nothing."""

import hashlib
import io
import json
import pickle
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from operators.base import Operator
from operators.boundary import Boundary
from operators.data import Samples
from operators.data.trajectories import task_from
from operators.training.files import FileError, read, read_json, write
from operators.transforms import Extent, Normalizer, Predictor

WEIGHTS, CONFIG = "model.safetensors", "config.json"  # of a model folder
MODEL_FORMAT = "pdegen model 1"
_KEY = "operators"
FORMAT_VERSION = 2
_BLANK = b"0" * 64  # in the place of a digest, where it is computed
_DIGEST = re.compile(rb'"operators":"\{\\"sha256\\": \\"([0-9a-f]{64})\\"')
_STATE = re.compile(rb"pdegen training state 2, SHA-256 ([0-9a-f]{64})\n")


class CheckpointError(FileError):
    """A checkpoint that is absent, damaged, or does not fit; one line."""


def saving_checkpoint(
    path: Path, predictor: Predictor, description: dict[str, Any]
) -> Callable[[], None]:
    """What writes the predictor as it is now as a whole, whenever it is called."""
    operator = predictor.operator
    header = {
        "sha256": _BLANK.decode(),  # first, where _DIGEST finds it
        **description,
        "format_version": FORMAT_VERSION,
        "channels": [operator.in_channels, operator.out_channels],
        "dim": operator.dim,
        "task": predictor.task.description(),
        "boundary": None if predictor.boundary is None else predictor.boundary.description(),
        "extent": None if predictor.extent is None else predictor.extent.description(),
    }
    tensors = {name: v.contiguous() for name, v in _kept(predictor.state_dict()).items()}
    return partial(_write_checkpoint, path, tensors, json.dumps(header))


def _write_checkpoint(path: Path, tensors: dict[str, Tensor], header: str) -> None:
    data = bytes_of(tensors, {_KEY: header})
    digest = hashlib.sha256(data).hexdigest().encode()
    found = _DIGEST.search(data)
    assert found is not None
    write(path, data[: found.start(1)] + digest + data[found.end(1) :])


def _kept(value: Any, copies: dict[Any, Tensor] | None = None) -> Any:
    """A copy of tensors in the memory of the host, within dictionaries, lists and tuples."""
    copies = {} if copies is None else copies
    if isinstance(value, Tensor):
        place = (value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in copies:
            copies[place] = value.detach().to("cpu", copy=True)
        return copies[place]
    if isinstance(value, Mapping):
        return {key: _kept(one, copies) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_kept(one, copies) for one in value)
    return value


def load_checkpoint(
    path: Path, build: Callable[[dict[str, Any]], Operator]
) -> tuple[Predictor, dict[str, Any]]:
    """Read a predictor in evaluation mode, and its description.

    Args:
        build: Makes the operator from the description's "operator". It is called twice: first
            for shapes alone, so that a description of other ones than the file has takes no memory.

    Raises:
        CheckpointError: If the file is absent, damaged, no checkpoint, or does not fit its
            description.
    """
    tensors, header = _read_checkpoint(path)

    def made() -> Predictor:
        operator = build(header["operator"])
        boundary, extent = header["boundary"], header["extent"]
        return Predictor(
            operator,
            input,
            target,
            None if boundary is None else Boundary.described(boundary),
            task_from(header["task"]),
            None if extent is None else Extent(*map(tuple, extent)),
        )

    try:
        input, target = (Normalizer.from_state(tensors, name) for name in ("input", "target"))
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            _check_kinds(path, tensors, made())
        predictor = made()
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is not a checkpoint of this version: {error}") from None
    predictor.load_state_dict(tensors)
    return predictor.eval(), header


def check_checkpoint(path: Path) -> dict[str, Any]:
    """The description of a checkpoint whose bytes are those that were written. Raises
    CheckpointError if it is absent or damaged."""
    return _read_checkpoint(path)[1]


def _read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not path.exists():
        raise CheckpointError(f"{path}: no such checkpoint")
    data = _read(path)
    found = _DIGEST.search(data)
    if found is not None:
        _check_digest(path, found[1], data[: found.start(1)], _BLANK, data[found.end(1) :])
    try:
        tensors = tensors_of(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY])
        version = header["format_version"]
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged, or is not a checkpoint: {error}") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version}, this version reads {FORMAT_VERSION}"
        )
    if found is None:
        raise CheckpointError(f"{path} is damaged: it has no SHA-256")
    return tensors, header


def _check_kinds(path: Path, tensors: Mapping[str, Tensor], predictor: Predictor) -> None:
    """Raise CheckpointError unless a predictor has tensors of these names, dtypes and shapes."""
    expected = predictor.state_dict()
    if tensors.keys() != expected.keys():
        name = min(tensors.keys() ^ expected.keys())
        what = "is missing" if name in expected else "is not expected"
        raise CheckpointError(f"{path} does not fit its description: {name} {what}")
    for name, tensor in tensors.items():
        got, wanted = ((v.dtype, tuple(v.shape)) for v in (tensor, expected[name]))
        if got != wanted:
            raise CheckpointError(
                f"{path} does not fit its description: {name} is of {wanted[0]} {wanted[1]}, "
                f"got {got[0]} {got[1]}"
            )


def model_file(folder: Path) -> Path:
    """The checkpoint of a model folder, which its config.json is of. Raises CheckpointError if the
    folder is none, or is damaged."""
    weights, config = folder / WEIGHTS, folder / CONFIG
    if not config.is_file():
        raise CheckpointError(
            f"{folder} is a folder without {CONFIG}: name a checkpoint of a run, or a folder of "
            "pdegen export RUN --format model"
        )
    try:
        said = read_json(config)
    except FileError as error:
        raise CheckpointError(str(error)) from None
    if said.get("format") != MODEL_FORMAT:
        raise CheckpointError(f"{config} is not of a model: its format is {said.get('format')!r}")
    if not weights.exists():
        raise CheckpointError(f"{weights}: no such checkpoint")
    if hashlib.sha256(_read(weights)).hexdigest() != said.get("weights_sha256"):
        raise CheckpointError(f"{weights} is damaged, or {CONFIG} beside it is of other weights")
    return weights


def check_fit(predictor: Predictor, pairs: Samples) -> None:
    """Raise CheckpointError where the data have other channels or dimension than the operator."""
    operator = predictor.operator
    expected = (operator.in_channels, operator.out_channels, operator.dim)
    got = (*pairs.channels, pairs.dim)
    if expected != got:
        raise CheckpointError(
            "the operator has input channels, output channels, dimension "
            f"{expected}, the data {got}"
        )


def saving_state(path: Path, state: Mapping[str, object]) -> Callable[[], None]:
    """What writes a training state, a line with the digest before torch.save's bytes, when it is
    called."""
    return partial(_write_state, path, _kept(state))


def _write_state(path: Path, state: Mapping[str, object]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    write(path, f"pdegen training state 2, SHA-256 {digest}\n".encode() + data)


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a training state; only tensors and plain values are unpickled.

    Raises:
        CheckpointError: If it is damaged, or something else.
        OSError: If it is absent, or cannot be read.
    """
    data = _read(path)
    first = _STATE.match(data)
    if first is None:
        raise CheckpointError(f"{path} is damaged, or no training state")
    data = data[first.end() :]
    _check_digest(path, first[1], data)
    try:
        state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:  # torch would advise to execute what is in it
        reason = "it holds more than tensors and plain values, and is not loaded"
        raise CheckpointError(f"{path} is no training state: {reason}") from error
    except Exception as error:  # torch raises many kinds on what is none of its archives
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged, or no training state: {reason}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is no training state: it holds a {type(state).__name__}")
    return state


def _read(path: Path) -> bytes:
    try:
        return read(path)
    except FileError as error:
        raise CheckpointError(str(error)) from None


def _check_digest(path: Path, digest: bytes, *parts: bytes) -> None:
    computed = hashlib.sha256()
    for part in parts:
        computed.update(part)
    if computed.hexdigest().encode() != digest:
        raise CheckpointError(f"{path} is damaged: it has not the SHA-256 that it was written with")


class StartError(FileError):
    """A file of weights that is absent, damaged, or of another operator; one line."""


def renamed(operator: Operator, name: str) -> str:
    """What a tensor of published weights is called here."""
    for released, here in operator.released_names:
        name = name.replace(released, here)
    return name


def _kind(tensor: Tensor) -> str:
    if tensor.is_floating_point():
        return "real numbers"
    return "complex numbers" if tensor.is_complex() else "integers"


def start_from(operator: Operator, path: Path) -> dict[str, Any]:
    """Take over the weights of a file: published ones, or those that `state_dict` names.

    Tensors that depend on the channels keep their initial numbers where the file has other
    channels. All others must be there, with their shapes, and nothing else. Finite real numbers
    of any precision stand for real ones.

    Args:
        path: A safetensors file, such as that of Poseidon-T for `scot`.

    Returns:
        What a run records: "sha256" of the file, and the names that start "anew".

    Raises:
        StartError: If there is no such file, or it does not fit; the operator is unchanged.

    >>> from safetensors.torch import save_file
    >>> from operators.models.fno import FNO
    >>> model, path = FNO(width=8, modes=4), Path(getfixture("tmp_path")) / "w.safetensors"
    >>> save_file(FNO(width=8, modes=4).state_dict(), path)
    >>> start_from(model, path)["anew"]
    []
    """
    try:
        data = read(path)
        tensors = tensors_of(data)
    except OSError as error:
        raise StartError(f"{path}: {error.strerror or error}") from None
    except FileError as error:
        raise StartError(str(error)) from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise StartError(f"{path} is damaged, or no safetensors file: {error}") from None
    given = {renamed(operator, name): tensor for name, tensor in tensors.items()}
    expected, kind = operator.state_dict(), type(operator).__name__
    if len(given) < len(tensors) or given.keys() != expected.keys():
        name = min(given.keys() ^ expected.keys(), default="one of two names for one tensor")
        what = "is missing" if name in expected else "is not expected"
        raise StartError(f"{path} does not fit {kind} with these settings: {name} {what}")
    anew = [name for name in expected if given[name].shape != expected[name].shape]
    for name in anew:
        if not name.startswith(operator.by_channels or ("\0",)):
            got, wanted = (tuple(v[name].shape) for v in (given, expected))
            raise StartError(
                f"{path} does not fit {kind} with these settings: {name} has shape {got}, "
                f"expected {wanted}"
            )
    taken = {name: given[name] for name in expected if name not in anew}
    for name, tensor in taken.items():
        if _kind(tensor) != (kind_here := _kind(expected[name])):
            got = str(tensor.dtype).removeprefix("torch.")
            raise StartError(f"{path}: {name} has numbers of type {got}, expected {kind_here}")
        if not tensor.to(expected[name].dtype).isfinite().all():
            raise StartError(f"{path}: {name} has numbers that are not finite")
    with torch.no_grad():
        for name, tensor in taken.items():
            expected[name].copy_(tensor)
    return {"sha256": hashlib.sha256(data).hexdigest(), "anew": anew}
