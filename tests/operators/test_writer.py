"""Files that are written while steps go on: in order, whole, and never in silence lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from operators.models.galerkin import GalerkinTransformer
from operators.norms import RelativeH1
from operators.training import checkpoint
from operators.training import fit as train
from operators.training.checkpoint import load_state, saving_checkpoint, saving_state
from operators.training.fit import Settings, TrainingError, fit
from operators.transforms import Normalizer, Predictor
from pdegen.files import Writer, read_lines


class Killed(BaseException):
    """Like the end of the process."""


def predictor():
    torch.manual_seed(0)
    operator = GalerkinTransformer(width=8, depth=1, feedforward=8, modes=3, decoder_width=4)
    return Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))


def test_jobs_run_in_order_beside_who_asked():
    done, go = [], threading.Event()
    with Writer() as writer:
        writer(go.wait, lambda: done.append(1))
        done.append(0)  # the first job still waits
        go.set()
        writer(lambda: done.append(2))
    assert done == [0, 1, 2]


@pytest.mark.parametrize("error", [OSError("no room"), Killed()])
def test_what_a_job_raises_is_raised_and_no_further_job_begins(error):
    done = []

    def fails():
        raise error

    with pytest.raises(type(error)), Writer() as writer:  # noqa: PT012
        writer(fails, lambda: done.append(1))
        writer(lambda: done.append(2))
    with pytest.raises(type(error)), Writer() as writer:
        writer(fails)  # the last
    assert done == []


def test_an_error_of_the_steps_is_raised_with_that_of_the_files():
    def fails():
        raise OSError("no room")

    with pytest.raises(TrainingError) as raised, Writer() as writer:  # noqa: PT012
        writer(fails)
        raise TrainingError("not finite")
    assert raised.value.__notes__ == ["and a file was not written: no room"]


def test_what_is_written_is_what_was_when_it_was_asked_for(tmp_path):
    model = predictor()
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    weights = saving_checkpoint(tmp_path / "w.safetensors", model, {"operator": {}})
    kept = saving_state(
        tmp_path / "state.pt", {"m": model.state_dict(), "o": optimizer.state_dict()}
    )
    weights()
    at_once = (tmp_path / "w.safetensors").read_bytes()
    optimizer.step()
    weights()
    kept()
    assert (tmp_path / "w.safetensors").read_bytes() == at_once
    saved = load_state(tmp_path / "state.pt", torch.device("cpu"))
    names = [name for name, _ in model.named_parameters()]
    assert all(torch.equal(saved["m"][name], p) for name, p in zip(names, before, strict=True))
    assert float(saved["o"]["state"][0]["step"]) == 1


def test_the_steps_of_an_epoch_run_while_the_files_of_another_are_written(
    train_pairs, test_pairs, tmp_path, monkeypatch
):
    """The first state waits for a step of the second epoch; alone, it would wait for ever."""
    stepped, write, saved = threading.Event(), checkpoint.write, []

    def waiting(path: Path, data: bytes) -> None:
        if path.name == "state.pt" and not saved:
            assert stepped.wait(60)
        saved.append(path.name)
        write(path, data)

    monkeypatch.setattr(checkpoint, "write", waiting)
    steps = iter(range(1, 100))
    per_epoch = len(train_pairs) // 8

    def stop():
        if next(steps) == per_epoch + 1:
            stepped.set()
        return False

    settings = Settings(loss=RelativeH1(), epochs=2, batch=8)
    fit(predictor(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}}, stop=stop)
    of_an_epoch = ["last.safetensors", "state.pt"]
    assert [name for name in saved if name != "best.safetensors"] == 2 * of_an_epoch
    assert len(read_lines(tmp_path / "history.jsonl")) == 2


@pytest.mark.parametrize(
    ("module", "writing", "stop"), [(train, "write_lines", False), (checkpoint, "write", True)]
)
def test_a_disk_that_is_full_ends_training(
    train_pairs, test_pairs, tmp_path, monkeypatch, module, writing, stop
):
    """It is not reported as stopped, which promises that it can be resumed."""

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, writing, full)
    settings = Settings(loss=RelativeH1(), epochs=1, batch=8)
    with pytest.raises(OSError, match="No space left"):
        fit(
            predictor(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}},
            stop=lambda: stop,
        )  # fmt: skip
