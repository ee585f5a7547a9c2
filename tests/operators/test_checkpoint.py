"""Checkpoints and states of trainings: every changed byte is found, and nothing is executed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from operators.base import Operator
from operators.training import checkpoint as training_checkpoint
from operators.training.checkpoint import (
    CheckpointError,
    check_checkpoint,
    load_checkpoint,
    load_state,
    saving_checkpoint,
    saving_state,
)
from operators.transforms import Normalizer, PhaseValues, Predictor

CPU = torch.device("cpu")


class Affine(Operator):
    """u = c a + b, with b and c learnt."""

    in_channels, out_channels, dim = 1, 1, 1

    def __init__(self, words: Any = None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, a: Any, x: Any, y: Any = None) -> Any:
        return self.linear(a)


def predictor() -> Predictor:
    return Predictor(Affine(), Normalizer.identity(1), Normalizer.identity(1))


def test_a_predictor_of_two_phases_predicts_the_same_after_it_is_loaded(tmp_path: Path) -> None:
    made = predictor()
    made.phases = PhaseValues(3.0, 12.0)
    saving_checkpoint(tmp_path / "m.safetensors", made, {"operator": {}})()
    loaded, _ = load_checkpoint(tmp_path / "m.safetensors", Affine)
    a = torch.linspace(-5, 5, 8)[None, :, None]
    logits = made.on(None, raw=True)(a)
    assert torch.equal(logits, made.operator(a, None))
    assert torch.equal(loaded(a, None), made(a, None))
    torch.testing.assert_close(loaded(a, None), 3 + 9 / (1 + torch.exp(-logits)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    saving_checkpoint(tmp_path / "m.safetensors", predictor(), {"operator": {}, "epoch": 12})()
    return tmp_path / "m.safetensors"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    saving_state(tmp_path / "state.pt", {"step": 3, "weights": torch.arange(4.0)})()
    return tmp_path / "state.pt"


def load(path: Path) -> object:
    return load_state(path, CPU) if path.suffix == ".pt" else load_checkpoint(path, Affine)


@pytest.mark.parametrize("kind", ["checkpoint", "state"])
def test_every_flipped_byte_is_refused_in_one_line(
    request: pytest.FixtureRequest, kind: str
) -> None:
    path: Path = request.getfixturevalue(kind)
    whole = path.read_bytes()
    assert len(whole) > 500
    for k in range(len(whole)):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 1 << k % 8]) + whole[k + 1 :])
        with pytest.raises(CheckpointError) as caught:
            load(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_cut_files_are_refused(checkpoint: Path, state: Path, share: float) -> None:
    for path in (checkpoint, state):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(share * len(whole))])
    for load in (lambda: check_checkpoint(checkpoint), lambda: load_state(state, CPU)):
        with pytest.raises(CheckpointError, match="is damaged"):
            load()


def test_the_same_predictor_has_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    loaded, description = load_checkpoint(checkpoint, Affine)
    kept = {key: description[key] for key in ("operator", "epoch")}
    saving_checkpoint(tmp_path / "again.safetensors", loaded, kept)()
    assert (tmp_path / "again.safetensors").read_bytes() == checkpoint.read_bytes()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.operator.double(), r"linear.* must be torch.float32 .*, got torch.float64"),
        (lambda p: setattr(p.operator, "linear", torch.nn.Linear(2, 1)), r"\(1, 1\), got .* 2\)"),
        (lambda p: setattr(p.operator, "more", torch.nn.Linear(1, 1)), "more.bias is not expected"),
        (lambda p: p.input.register_buffer("mean", torch.zeros(1).double()), "float32"),
        (lambda p: p.input.register_buffer("mean", torch.zeros(2)), "normaliser"),
    ],
    ids=["dtype", "shape", "name", "normaliser's dtype", "normaliser's shape"],
)
def test_tensors_of_another_kind_are_refused(
    tmp_path: Path, change: Callable[[Predictor], object], message: str
) -> None:
    changed = predictor()
    change(changed)
    path = tmp_path / "m.safetensors"
    saving_checkpoint(path, changed, {"operator": {}})()
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path, Affine)


def header(**changed: Any) -> str:
    plain = {"operator": {}, "format_version": 2, "channels": [1, 1], "dim": 1}
    return json.dumps({**plain, **changed})


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[1]", "{}", "{", '"text"', "9" * 5000, header(format_version=1),
     header(format_version=7)],
    ids=["deep", "list", "empty", "torn", "text", "long", "earlier version", "other version"],
)  # fmt: skip
def test_a_header_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.safetensors"
    save_file(predictor().state_dict(), path, metadata={"operators": text})
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, Affine)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "m")
    for load in (lambda path: load_checkpoint(path, Affine), lambda path: load_state(path, CPU)):
        with pytest.raises(CheckpointError, match="expected a file"):
            load(tmp_path / "m")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["EVIL"],)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_state_that_would_execute_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    monkeypatch.setenv("EVIL", str(tmp_path / "executed"))
    buffer = io.BytesIO()
    torch.save({"step": Evil()}, buffer)
    data = buffer.getvalue()
    if sealed:
        digest = hashlib.sha256(data).hexdigest()
        data = f"pdegen training state 2, SHA-256 {digest}\n".encode() + data
    for content in (data, pickle.dumps(Evil())):
        (tmp_path / "state.pt").write_bytes(content)
        with pytest.raises(CheckpointError) as refusal:
            load_state(tmp_path / "state.pt", CPU)
        assert "weights_only" not in str(refusal.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.usefixtures("unchecked")
def test_a_state_that_is_a_list_is_refused(state: Path) -> None:
    saving_state(state, [1, 2])()  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="it holds a list"):
        load_state(state, CPU)


def test_an_absent_file_and_one_without_normalisers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(path, Affine)
    weights = {k: v for k, v in predictor().state_dict().items() if k.startswith("operator.")}
    described = json.dumps({"sha256": "0" * 64, **json.loads(header(boundary=None))})
    training_checkpoint._write_checkpoint(path, weights, described)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(path, Affine)


def test_files_without_a_digest_are_refused(tmp_path: Path) -> None:
    torch.save({"step": 3}, tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=r"state.pt is damaged, or not a training state"):
        load_state(tmp_path / "state.pt", CPU)
    path = tmp_path / "m.safetensors"
    save_file(predictor().state_dict(), path, metadata={"operators": header()})
    with pytest.raises(CheckpointError, match=r"m.safetensors is damaged: it has no SHA-256"):
        load_checkpoint(path, Affine)
