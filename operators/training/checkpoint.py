"""Checkpoint files of trained predictors, and state files of unfinished trainings.

A checkpoint is a safetensors file of the weights and normalisers. Its header contains the other
settings as JSON. Checkpoints and state files contain a SHA-256 of their bytes. Loading a file
executes no code from it.
"""

import hashlib
import io
import json
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from operators.base import Operator
from operators.data import Samples
from operators.data.trajectories import task_from
from operators.plugins import fault_of_class, recorded_file, recorded_files
from operators.posterior import FlowPosterior
from operators.registry import OPERATORS
from operators.trained import trained_folder, trained_models
from operators.transforms import Boundary, Extent, Normalizer, PhaseValues, Predictor
from pdegen.domains import Box, DomainError, from_attributes
from pdegen.files import FileError, read, read_json, write

WEIGHTS, CONFIG = "model.safetensors", "config.json"  # files of a model folder
MODEL_FORMAT = "pdegen model 1"
_KEY = "operators"
FORMAT_VERSION = 2
_BLANK = b"0" * 64  # stands for the digest while it is computed
_DIGEST = re.compile(rb'"operators":"\{\\"sha256\\": \\"([0-9a-f]{64})\\"')
_STATE = re.compile(rb"pdegen training state 2, SHA-256 ([0-9a-f]{64})\n")


class CheckpointError(FileError):
    """A checkpoint is missing, damaged, or does not fit. The message is one line."""


def saving_checkpoint(
    path: Path, predictor: Predictor, description: dict[str, Any]
) -> Callable[[], None]:
    """Copy a predictor; return a function that writes the copy to a checkpoint.

    Args:
        description: Further entries of the header. `load_checkpoint` builds the operator from the
            entry "operator".
    """
    operator = predictor.operator
    header = {
        "sha256": _BLANK.decode(),  # first, where _DIGEST finds it
        **description,
        **({"mean": "square"} if predictor.mean else {}),
        **({} if predictor.phases is None else {"phases": [*vars(predictor.phases).values()]}),
        **({"gaussian": True} if predictor.gaussian else {}),
        **(
            {"flow": {"members": predictor.members, "steps": predictor.steps}}
            if isinstance(predictor, FlowPosterior)
            else {}
        ),
        "format_version": FORMAT_VERSION,
        "channels": [predictor.in_channels, predictor.out_channels],
        "dim": operator.dim,
        "task": predictor.task.description(),
        "boundary": None if predictor.boundary is None else predictor.boundary.description(),
        "extent": None if predictor.extent is None else predictor.extent.description(),
    }
    tensors = {name: v.contiguous() for name, v in _on_host(predictor.state_dict()).items()}
    return partial(_write_checkpoint, path, tensors, json.dumps(header))


def _write_checkpoint(path: Path, tensors: dict[str, Tensor], header: str) -> None:
    data = bytes_of(tensors, {_KEY: header})
    digest = hashlib.sha256(data).hexdigest().encode()
    blank = _DIGEST.search(data)
    assert blank is not None
    write(path, data[: blank.start(1)] + digest + data[blank.end(1) :])


def _on_host(value: Any, copies: dict[Any, Tensor] | None = None) -> Any:
    """Copy nested dictionaries, lists and tuples, with all tensors in host memory."""
    copies = {} if copies is None else copies
    if isinstance(value, Tensor):
        memory = (value.data_ptr(), value.dtype, value.shape, value.stride())
        if memory not in copies:
            copies[memory] = value.detach().to("cpu", copy=True)
        return copies[memory]
    if isinstance(value, Mapping):
        return {key: _on_host(item, copies) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_host(item, copies) for item in value)
    return value


def load_checkpoint(
    path: Path, build: Callable[[dict[str, Any]], Operator]
) -> tuple[Predictor, dict[str, Any]]:
    """Read a predictor and its description. The predictor is in evaluation mode.

    Args:
        build: Function that builds the operator from the entry "operator" of the description. It
            is called twice. The first call is on the meta device, to compare tensor shapes with
            the file before memory is allocated.

    Raises:
        CheckpointError: If the file is missing, damaged, not a checkpoint, or does not fit its
            description. Also if its operator is of a user's file that is not loaded, or of another
            version of the file.
    """
    tensors, header = _read_checkpoint(path)

    def built() -> Predictor:
        operator = build(header["operator"])
        boundary, extent, phases = header["boundary"], header["extent"], header.get("phases")
        extent = None if extent is None else Extent(*map(tuple, extent))
        if flow := header.get("flow"):
            return FlowPosterior(
                operator, input, target, tensors["spectrum"], extent,
                int(flow["members"]), int(flow["steps"]),
            )  # fmt: skip
        return Predictor(
            operator, input, target,
            None if boundary is None else Boundary.described(boundary),
            task_from(header["task"]),
            extent,
            mean={None: False, "square": True}[header.get("mean")],
            phases=None if phases is None else PhaseValues(*map(float, phases)),
            gaussian=bool(header.get("gaussian")),
        )  # fmt: skip

    try:
        input, target = (Normalizer.from_state(tensors, name) for name in ("input", "target"))
        _check_plugin(path, header)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            _check_tensors(path, tensors, built())
        predictor = built()
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is not a checkpoint of this version: {error}") from None
    predictor.load_state_dict(tensors)
    return predictor.eval(), header


def _check_plugin(path: Path, header: Mapping[str, Any]) -> None:
    """Raise CheckpointError if the operator comes from another file than in its training."""
    file = recorded_file(header, "operator")
    if file is not None:
        name = header["operator"]["model"]["name"]
        registered = OPERATORS[name].registered if name in OPERATORS else None
        if fault := fault_of_class(f"operator {name}", registered, file, path.parent):
            raise CheckpointError(f"{path}: {fault}")


@dataclass(frozen=True)
class Grids:
    """The grids of a training, which a checkpoint records."""

    x: Box  # points of the inputs
    y: Box | None  # points of the targets; None if they are those of the inputs
    stored: Box  # all points of the store, of which x has every r-th one along each axis

    @classmethod
    def of(cls, pairs: Samples) -> "Grids | None":
        """The grids of training samples; None if their points are those of a mesh or a cloud."""
        x, y, stored = pairs.domain, pairs.target_domain, pairs.stored_domain or pairs.domain
        if not isinstance(x, Box) or not isinstance(stored, Box):
            return None
        return cls(x, y if isinstance(y, Box) else None, stored)

    def on(self, n: tuple[int, ...]) -> Box:
        """The grid of the same kind on the stored box with n points along each axis.

        Raises ValueError if `n` has neither one number nor one for each axis, or if the kind allows
        no such number.
        """
        axes = self.stored.grids
        if len(n) not in (1, len(axes)):
            raise ValueError(f"expected {len(axes)} numbers of points, got {len(n)}")
        sizes = n * (len(axes) // len(n))
        return Box(tuple(replace(grid, n=m) for grid, m in zip(axes, sizes, strict=True)))

    def description(self) -> dict[str, Any]:
        """Attributes of each grid (`Box.attributes`), as stored in checkpoints."""
        return {name: box and box.attributes() for name, box in vars(self).items()}

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> "Grids":
        """The grids with this description. Raises CheckpointError if it is damaged."""
        try:
            boxes = {k: v and from_attributes(v) for k, v in description.items()}
            x, y, stored = (boxes[name] for name in ("x", "y", "stored"))
        except (DomainError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"the grids of the checkpoint are damaged: {error}") from None
        if isinstance(x, Box) and isinstance(stored, Box) and (y is None or isinstance(y, Box)):
            return cls(x, y, stored)
        raise CheckpointError("the grids of the checkpoint are damaged: they are no boxes")


def check_checkpoint(path: Path) -> dict[str, Any]:
    """Read the description in a checkpoint.

    Raises:
        CheckpointError: If the file is missing or damaged.
    """
    return _read_checkpoint(path)[1]


def _read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not path.exists():
        raise CheckpointError(f"{path}: no such checkpoint")
    data = _read(path)
    digest = _DIGEST.search(data)
    if digest is not None:
        _check_digest(path, digest[1], data[: digest.start(1)], _BLANK, data[digest.end(1) :])
    try:
        tensors = tensors_of(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY])
        version, _ = header["format_version"], recorded_files(header)
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged, or is not a checkpoint: {error}") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version}, this version reads {FORMAT_VERSION}"
        )
    if digest is None:
        raise CheckpointError(f"{path} is damaged: it has no SHA-256")
    return tensors, header


def _check_tensors(path: Path, tensors: Mapping[str, Tensor], predictor: Predictor) -> None:
    """Raise CheckpointError unless a predictor has the names, dtypes and shapes of `tensors`."""
    expected = predictor.state_dict()
    if tensors.keys() != expected.keys():
        name = min(tensors.keys() ^ expected.keys())
        problem = "is missing" if name in expected else "is not expected"
        raise CheckpointError(f"{path} does not fit its description: {name} {problem}")
    for name, tensor in tensors.items():
        got, needed = ((v.dtype, tuple(v.shape)) for v in (tensor, expected[name]))
        if got != needed:
            raise CheckpointError(
                f"{path} does not fit its description: {name} must be {needed[0]} {needed[1]}, "
                f"got {got[0]} {got[1]}"
            )


def checkpoint_file(checkpoint: Path) -> Path:
    """Path of the safetensors file that `checkpoint` stands for.

    Args:
        checkpoint: A safetensors file, the folder of an exported model, or the name of a trained
            model of the package (`operators.trained.trained_models`). An existing file or folder
            comes before a name.

    Raises:
        CheckpointError: If nothing has this path or name, or if a folder contains no model.
    """
    if not checkpoint.exists():
        folder = trained_folder(str(checkpoint))
        if folder is not None:
            return model_file(folder)
        if not checkpoint.suffix and checkpoint.name == str(checkpoint):
            known = ", ".join(trained_models())
            raise CheckpointError(f"{checkpoint}: no such checkpoint; trained models: {known}")
        return checkpoint
    if not checkpoint.is_dir():
        return checkpoint
    files = [checkpoint / f"{name}.safetensors" for name in ("best", "last")]
    files = [path for path in files if path.is_file()]
    if files and not (checkpoint / CONFIG).is_file():
        raise CheckpointError(f"{checkpoint} is a folder: name its checkpoint, {files[0]}")
    return model_file(checkpoint)


def model_file(folder: Path) -> Path:
    """Path of the checkpoint in a model folder, after comparing its SHA-256 with config.json.

    Raises:
        CheckpointError: If the folder is not a model folder, or if a file is damaged.
    """
    weights, config = folder / WEIGHTS, folder / CONFIG
    if not config.is_file():
        raise CheckpointError(
            f"{folder} is a folder without {CONFIG}: give a checkpoint of a run, or a folder "
            "made by pdegen export RUN --format model"
        )
    try:
        description = read_json(config)
    except FileError as error:
        raise CheckpointError(str(error)) from None
    if (format := description.get("format")) != MODEL_FORMAT:
        raise CheckpointError(f"{config} does not describe a model: its format is {format!r}")
    if not weights.exists():
        raise CheckpointError(f"{weights}: no such checkpoint")
    if hashlib.sha256(_read(weights)).hexdigest() != description.get("weights_sha256"):
        raise CheckpointError(
            f"{weights} is damaged, or {CONFIG} beside it describes other weights"
        )
    return weights


def check_fit(predictor: Predictor, pairs: Samples) -> None:
    """Raise CheckpointError if data and operator differ in their channels or dimension."""
    operator = predictor.operator
    expected = (predictor.in_channels, predictor.out_channels, operator.dim)
    got = (*pairs.channels, pairs.dim)
    if expected != got:
        raise CheckpointError(
            "the operator has input channels, output channels, dimension "
            f"{expected}, the data {got}"
        )


def saving_state(path: Path, state: Mapping[str, object]) -> Callable[[], None]:
    """Copy a training state; return a function that writes the copy to a file.

    The file starts with a line that contains the SHA-256. The bytes of torch.save come after it.
    """
    return partial(_write_state, path, _on_host(state))


def _write_state(path: Path, state: Mapping[str, object]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    write(path, f"pdegen training state 2, SHA-256 {digest}\n".encode() + data)


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a training state. Only tensors and plain values are unpickled.

    Raises:
        CheckpointError: If the file is damaged, or not a training state.
        OSError: If the file is missing or cannot be read.
    """
    data = _read(path)
    header = _STATE.match(data)
    if header is None:
        raise CheckpointError(f"{path} is damaged, or not a training state")
    data = data[header.end() :]
    _check_digest(path, header[1], data)
    try:
        state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:  # torch's message advises to execute the file
        reason = "it holds more than tensors and plain values, and is not loaded"
        raise CheckpointError(f"{path} is not a training state: {reason}") from error
    except Exception as error:  # torch raises many types on files that are not its archives
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged, or not a training state: {reason}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} is not a training state: it holds a {type(state).__name__}")
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
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the one it was written with")
