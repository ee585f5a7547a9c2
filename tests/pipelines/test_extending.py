"""Benchmark files that extend others: what is merged, what is refused."""

import pytest

from pdegen.files import read_json
from pdegen.schema import SchemaError, read_toml
from pipelines.config.benchmark import Profile, load_benchmark
from pipelines.config.shipped import file_of
from pipelines.config.shipped import merged_benchmark as merged
from tests.pipelines.test_profile_command import PROFILE

ROW = """
extends = "quick"

[operators."FNO, 8 modes".models]
burgers = { name = "fno", width = 32, modes = 8 }
"""


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return str(path)


def test_a_row_in_three_lines_is_the_extended_table_with_that_row(tmp_path):
    table, base = load_benchmark(write(tmp_path, "mine.toml", ROW)), load_benchmark("quick")
    assert list(table.operators) == [*base.operators, "FNO, 8 modes"]
    kept = {name: entry for name, entry in table.operators.items() if name in base.operators}
    assert table.model_copy(update={"operators": kept}) == base
    assert "extends" not in table.model_dump()


def test_training_resolutions_replace_the_one_of_the_extended_file():
    base, changes = {"overrides": {"data.resolution": 85, "b": 1}}, {"data.resolutions": [43, 85]}
    assert merged(base, {"overrides": changes}) == {"overrides": {"b": 1, **changes}}


def test_tables_merge_by_key_and_lists_and_values_replace(tmp_path):
    text = """
extends = "standard"
name = "mine"
seeds = 1
search = { "training.lr" = [1e-3] }

[datasets.burgers]
overrides = { "training.epochs" = 2 }

[operators.FNO.models]
burgers = { width = 16 }
"""
    names = write(tmp_path, "mine.toml", text), "standard"
    table, base = (load_benchmark(name, sound=False) for name in names)
    assert (table.name, table.seeds, table.search) == ("mine", 1, {"training.lr": [1e-3]})
    assert table.widths == base.widths
    burgers = table.datasets["burgers"]
    assert burgers.overrides == base.datasets["burgers"].overrides | {"training.epochs": 2}
    assert burgers.coarser == base.datasets["burgers"].coarser
    model, before = (
        table.operators["FNO"].models["burgers"],
        base.operators["FNO"].models["burgers"],
    )
    assert model == type(before).parse({**before.model_dump(), "width": 16}, "fno")
    assert table.operators["FNO"].models["darcy"] == base.operators["FNO"].models["darcy"]


def test_a_table_of_something_else_replaces_the_former_one():
    base = {"operators": {"A": {"models": {"x": {"name": "fno", "modes": 8}}, "published": {}}},
            "datasets": {"x": {"experiment": "a", "overrides": {"epochs": 3}}}}  # fmt: skip
    other = {"operators": {"A": {"models": {"x": {"name": "pit"}}}},
             "datasets": {"x": {"experiment": "b"}}}  # fmt: skip
    assert merged(base, other) == {
        "operators": {"A": {"models": {"x": {"name": "pit"}}, "published": {}}},
        "datasets": {"x": {"experiment": "b"}},
    }
    one = merged(base["operators"]["A"], {"model": {"name": "fno"}})
    assert one == {"published": {}, "model": {"name": "fno"}}


def test_files_extend_files_by_paths_relative_to_them_in_a_chain(tmp_path):
    write(tmp_path, "a/one.toml", ROW)
    write(tmp_path, "a/two.toml", 'extends = "one.toml"\nseeds = 2\n')
    three = write(tmp_path, "three.toml", 'extends = "a/two.toml"\nname = "three"\n')
    table = load_benchmark(three)
    assert (table.name, table.seeds) == ("three", 2)
    assert "FNO, 8 modes" in table.operators


def test_a_profile_is_extended_as_well(tmp_path):
    text = 'extends = "profile-quick"\npoints = 64\n'
    profile = load_benchmark(write(tmp_path, "p.toml", text))
    assert isinstance(profile, Profile)
    assert profile == load_benchmark("profile-quick").model_copy(update={"points": 64})


def test_what_is_recorded_is_the_merged_table(pdegen, tmp_path):
    write(tmp_path, "base.toml", PROFILE)
    text = 'extends = "base.toml"\npoints = 32\nname = "small"\n'
    outcome = pdegen("benchmark", write(tmp_path, "p.toml", text), "--out", "run")
    assert outcome.status == 0, outcome.err
    recorded = read_json(tmp_path / "run/profile.json")
    assert (recorded["name"], recorded["points"], list(recorded["operators"])) == (
        "small", 32, ["GT"],
    )  # fmt: skip
    assert "extends" not in recorded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "standrad"', "mine.toml: extends: unknown benchmark 'standrad': did you mean"),
        ("extends = 3", "extends must be the name of a benchmark or a TOML file, got 3"),
        ('extends = ""', "extends must be the name of a benchmark or a TOML file, got ''"),
        ('extends = "absent.toml"', "absent.toml"),
        ('extends = "mine.toml"', "mine.toml: extends forms a circle: mine.toml -> mine.toml"),
        ('extends = "other.toml"', "circle: mine.toml -> other.toml -> mine.toml"),
        ('extends = "quick"\nseedz = 2', "unknown key 'seedz'"),
        (
            'extends = "quick"\n[operators.FNO.models]\nburgers = { moods = 8 }',
            "operators.FNO.models.burgers",
        ),
        (
            'extends = "quick"\n[operators.Mine.models]\nburger = { name = "fno" }',
            "Mine: no dataset 'burger': did you mean burgers",
        ),
    ],
)
def test_an_extension_that_cannot_be_is_one_line(refused, tmp_path, text, message):
    write(tmp_path, "other.toml", 'extends = "mine.toml"\n')
    line = refused("benchmark", write(tmp_path, "mine.toml", text), "--out", tmp_path / "run")
    assert message in line
    assert not (tmp_path / "run").exists()


def test_a_declaration_is_not_parsed_before_it_is_merged():
    with pytest.raises(SchemaError, match="extends: is a key of files"):
        Profile.parse(read_toml(file_of("benchmark", "profile-quick")) | {"extends": "quick"}, "p")


def test_keys_of_a_file_of_ones_own_are_those_of_the_merged_table(pdegen, tmp_path):
    out = pdegen("keys", write(tmp_path, "mine.toml", f"seeds = 4\n{ROW}")).out
    assert any(line.startswith("benchmark ") and "--set KEY=VALUE" in line for line in out)
    assert f'benchmark file {tmp_path}/mine.toml: a file of your own with extends = ' \
           f'"{tmp_path}/mine.toml"' in out  # fmt: skip
    assert "  seeds = 4" in out
    assert '  resolutions = {"burgers": [64, 128, 256], "darcy": [43]}' in out
