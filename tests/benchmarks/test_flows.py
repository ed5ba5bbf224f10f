"""The benchmark of transfers sends what it says, and its command prints a table and JSON."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.flows import LOADS, MODELS, SPACES, main, requests, run_model


@pytest.mark.parametrize("load", LOADS)
def test_requests_load_the_channels_as_stated(load: float) -> None:
    made = requests(20_000, load)
    carried = sum(size for *_, size in made) / made[-1][0] / SPACES
    assert carried == pytest.approx(load, rel=0.05)
    assert all(source != destination for _, source, destination, _ in made)


def test_flows_that_share_are_longer_under_way() -> None:
    made = requests(2_000, 0.5)
    overlap = {model: run_model(model, made)[1] for model in MODELS}
    assert overlap["none"] == pytest.approx(0.5 * SPACES, rel=0.1)
    assert overlap["fair"] > 1.5 * overlap["none"]
    assert overlap["fifo"] > 1.5 * overlap["none"]


def test_the_command_prints_a_table_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["flows", "--flows", "200", "--repeats", "1"])
    main()
    table, _, document = capsys.readouterr().out.partition("{")
    lines = table.splitlines()
    assert lines[0].split()[:3] == ["flows", "model", "load"]
    rows = json.loads("{" + document)["rows"]
    assert len(lines) - 1 == len(rows) == len(MODELS) * len(LOADS)
    assert all(row["us_per_flow"] > 0 for row in rows)
