"""A test that cannot run here fails where everything must be there."""

import pytest

from tests.absent import absent


def test_a_missing_component_skips_a_test_and_fails_it_in_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="mpirun is missing"):
        absent("mpirun is missing")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="mpirun is missing"):
        absent("mpirun is missing")


@pytest.mark.parametrize("name", ["burgers", "darcy"])
def test_published_samples_that_are_absent_fail_in_ci(name, tmp_path, monkeypatch):
    from tests.validation import published

    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="is absent"):
        published.file(tmp_path / "repository", f"real_{name}.npz")
