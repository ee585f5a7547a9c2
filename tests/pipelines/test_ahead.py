"""The inputs of the next epoch, made while one is learned."""

import threading

import pytest
import torch

from pipelines.runs.disturbed import Ahead


def of(epoch):
    return torch.tensor([float(epoch)])


def test_the_next_epoch_is_made_in_another_thread_before_it_is_asked_for():
    made, done = {}, threading.Event()

    def inputs(epoch):
        made[epoch] = threading.current_thread()
        if epoch == 1:
            done.set()
        return of(epoch)

    ahead = Ahead(inputs)
    assert ahead(0) == 0
    assert done.wait(30)
    assert made[0] is threading.current_thread() is not made[1]
    assert ahead(1) == 1


def test_epochs_are_functions_of_their_number_in_any_order():
    """As after a resume, or where an epoch is repeated."""
    ahead = Ahead(of)
    assert [float(ahead(epoch)) for epoch in (3, 4, 4, 0, 1, 7)] == [3, 4, 4, 0, 1, 7]


def test_what_fails_ahead_is_raised_when_it_is_asked_for():
    def inputs(epoch):
        if epoch == 1:
            raise ValueError("no inputs")
        return of(epoch)

    ahead = Ahead(inputs)
    assert ahead(0) == 0
    with pytest.raises(ValueError, match="no inputs"):
        ahead(1)
