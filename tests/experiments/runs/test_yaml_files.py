"""YAML that people wrote: refused in one sentence, by Hydra's way in as by ours, before it takes the memory."""

import pytest

from experiments import list as listing
from experiments import simulate, sweep
from experiments.runs import yaml_files
from experiments.runs.sweep_folder import choices_of
from simulator.errors import InvalidInput


def multiplied(levels):
    """Lists of ten aliases of the list before: 10 to the power of ``levels`` values."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels + 1)]
    return "\n".join(lines).encode()


DAMAGED = [
    (b"name: x\xff\n", "it is not text in UTF-8; was it damaged?"),
    (b"\x00\x01\x02", "Cannot read"),
    (b"name: [x\n", "expected ',' or ']'"),
    (b"a: " + b"[" * 300_000, "nested too deeply"),
    (multiplied(12), "stand for more than 100,000 values; write out what is meant"),
    (b"a: &a [*a]\n", "stand for more than 100,000 values"),
]


@pytest.mark.parametrize(("data", "message"), DAMAGED)
def test_config_folders_and_grids(tmp_path, monkeypatch, capsys, data, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster").mkdir()
    path = tmp_path / "cluster" / "mine.yaml"
    path.write_bytes(data)
    (tmp_path / "grid.yaml").write_bytes(data)
    own = ["--config-dir", str(tmp_path)]
    for command, words in (
        (simulate, ["cluster=mine"]),
        (sweep, ["cluster=mine", "dry_run=true"]),
        (listing, ["clusters"]),
    ):
        assert command.main([*words, *own]) == 2
        error = capsys.readouterr().err
        assert f"Cannot read {path}: " in error
        assert message in error
        assert len(error.splitlines()) == 1
    with pytest.raises(InvalidInput, match=r"Cannot read .*grid\.yaml: ") as refusal:
        choices_of(tmp_path)
    assert message in str(refusal.value)
    assert not (tmp_path / "outputs").exists()


def test_aliases_that_stand_for_little_are_read(tmp_path, monkeypatch):
    path = tmp_path / "a.yaml"
    path.write_bytes(multiplied(2))
    assert yaml_files.yaml_text(path).startswith("a0: ")
    monkeypatch.setattr(yaml_files, "MOST_VALUES", 2)
    path.write_text("a: &a {b: 1}\nc: *a\n")  # a mapping with a key and a value
    with pytest.raises(InvalidInput, match="more than 2 values"):
        yaml_files.yaml_text(path)
    monkeypatch.setattr(yaml_files, "MOST_VALUES", 3)
    assert yaml_files.yaml_text(path)
