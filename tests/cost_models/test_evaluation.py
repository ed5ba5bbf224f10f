import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cost_models import evaluation
from cost_models.folds import folds_of
from cost_models.roofline import Roofline
from cost_models.table import identities, load
from tests.cost_models.conftest import BANDWIDTH, OVERHEAD, PEAK, linear_row, random_table, relu_row

ROOFLINE = Roofline({"float32": PEAK}, BANDWIDTH, OVERHEAD)


class Memory:
    """A model that remembers what it was shown and answers 1 s."""

    def __init__(self, rows, kinds):
        self.rows, self.kinds = rows, kinds

    def predict(self, measurements):
        return np.ones(len(measurements))


def recording(shown):
    def fit(rows, kinds):
        shown.append(Memory(rows, kinds))
        return shown[-1]

    return fit


def test_no_shape_of_a_held_out_architecture_is_trained_on(measured_table):
    table, shown = load(measured_table), []
    found = evaluation.by_architecture(table, recording(shown))
    assert [name for name, _ in found.groupby("group")] == ["a", "b", "c", "d"]
    members = [set(names) for names in table["architectures"]]
    same = identities(table)
    for name, model in zip("abcd", shown, strict=True):
        held = {key for key, names in zip(same, members, strict=True) if name in names}
        rows = found.loc[found["group"] == name, "row"]
        assert all(name in members[row] for row in rows)
        # No row of the training data is an operator of the architecture, in any cache state.
        both = pd.concat([table.iloc[rows], model.rows], ignore_index=True)
        numbers = identities(both)
        assert not set(numbers[: len(rows)]) & set(numbers[len(rows) :])
        assert len(model.rows) == sum(key not in held for key in same)
        assert model.kinds == set(table["kind"].iloc[rows])


def test_shape_shared_with_a_sampled_row_is_taken_out_too():
    rows = [
        linear_row(8, 8, 8, architectures=["net"]),
        linear_row(8, 8, 8, architectures=[]),
        linear_row(9, 9, 9, architectures=[]),
    ]
    shown = []
    found = evaluation.by_architecture(load(pd.DataFrame(rows)), recording(shown))
    assert list(found["row"]) == [0]
    assert list(shown[0].rows["inputs"]) == [((9, 9), (9, 9))]


def test_folds_are_disjoint_and_cover_everything(table):
    shown = []
    frame = load(table)
    found = evaluation.by_fold(frame, recording(shown))
    assert sorted(found["row"]) == list(range(len(frame)))
    fold = folds_of(frame)
    for number, model in enumerate(shown):
        assert len(model.rows) == (fold != number).sum()


def test_tables_without_architectures_hold_none_out(table):
    assert len(evaluation.by_architecture(load(table), recording([]))) == 0


def test_errors_have_known_values():
    frame = load(pd.DataFrame([relu_row(5, 2.0), relu_row(6, 0.5)]))
    held = pd.DataFrame({"row": [1, 0], "group": "g", "predicted": [1.0, 1.0]})
    found = evaluation.relative_errors(frame, held)
    assert list(found["error"]) == [1.0, 0.5]
    assert list(found["log_residual"]) == pytest.approx([-np.log(2), np.log(2)])


def test_repeat_error_of_known_halves():
    frame = pd.DataFrame({"half_a_s": [1.1, 1.0], "half_b_s": [1.0, np.nan]})
    assert evaluation.repeat_errors(frame)[0] == pytest.approx(0.1)
    assert np.isnan(evaluation.repeat_errors(frame)[1])
    assert np.isnan(evaluation.repeat_errors(pd.DataFrame({"x": [1]}))).all()


def test_summary_lists_all_first_then_by_rows():
    frame = load(pd.DataFrame([relu_row(5, 1.0), relu_row(6, 1.0), linear_row(2, 2, 2, 1.0)]))
    frame["half_a_s"], frame["half_b_s"] = 1.02, 1.0
    held = pd.DataFrame({"row": [0, 1, 2], "group": "g", "predicted": [1.1, 1.3, 0.5]})
    table = evaluation.summary(frame, evaluation.relative_errors(frame, held))
    assert list(table.index) == ["all", "relu", "linear"]
    assert table.loc["relu", "median"] == pytest.approx(0.2)
    assert table.loc["all", "mean"] == pytest.approx((0.1 + 0.3 + 0.5) / 3)
    assert table.loc["linear", "bias"] == pytest.approx(-0.5)
    assert table.loc["all", "aa_median"] == pytest.approx(0.02)


def test_cross_validation_counts_only_the_priced_state(measured_table):
    table = load(measured_table)
    errors = evaluation.cross_validate(table, ROOFLINE, "graph", options={"boosted": {"rounds": 5}})
    assert set(errors) == {"boosted", "roofline"}
    for ways in errors.values():
        for rows in ways.values():
            assert len(rows)
            assert set(table["cache"].iloc[rows["row"]]) == {"graph"}


def test_trees_beat_the_bare_roofline_on_unseen_shapes():
    table = load(random_table(250))
    errors = evaluation.cross_validate(table, ROOFLINE, None)
    linear = {m: e["fold"].query("kind == 'linear'")["error"] for m, e in errors.items()}
    assert linear["boosted"].mean() < 0.5 * linear["roofline"].mean()


def test_processes_side_by_side_find_the_same(measured_table):
    table = load(measured_table)
    settings = {"models": ("polynomial",), "seed": 1}
    serial, parallel = (
        evaluation.cross_validate(table, ROOFLINE, "graph", workers=workers, **settings)
        for workers in (1, 2)
    )
    for name, ways in serial.items():
        for way, errors in ways.items():
            pd.testing.assert_frame_equal(errors, parallel[name][way])


def test_errors_say_what_was_out_of_range():
    rows = [linear_row(m, 64, 64, architectures=["small"]) for m in (16, 32, 64, 128)]
    rows += [linear_row(4096, 64, 64, architectures=["wide"]), relu_row(99, architectures=["wide"])]
    rows += [linear_row(m, 64, 64, architectures=[]) for m in (8, 256)]
    errors = evaluation.cross_validate(load(pd.DataFrame(rows)), ROOFLINE, None, ("polynomial",))
    held = errors["polynomial"]["architecture"]
    by_group = held.groupby("group")["in_range"].agg(list)
    assert by_group["small"] == [True] * 4
    assert by_group["wide"] == [False, False]  # more rows than measured, a kind never measured


ENDLESS = """
import os, sys, time
from pathlib import Path
from cost_models.evaluation import _results

class Endless:
    def result(self, split):
        Path(sys.argv[1], f"{os.getpid()}.begun").touch()
        while True:  # as a fit does, most of it outside Python
            time.sleep(60)

if __name__ == "__main__":
    list(_results(Endless(), [1, 2, 3], 2))
"""


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("with_signal", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_a_killed_fit_leaves_no_process_behind(tmp_path, pytestconfig, with_signal):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(pytestconfig.rootpath)},
        stderr=subprocess.DEVNULL,
    )
    workers = []
    try:
        assert until(lambda: len(list(tmp_path.glob("*.begun"))) == 2, 120)
        workers = [int(path.stem) for path in tmp_path.glob("*.begun")]
        assert all(map(running, workers))
        parent.send_signal(getattr(signal, with_signal))
        # Left alone they would run for ever.
        assert until(lambda: not any(map(running, workers)), 20)
        assert until(lambda: parent.poll() is not None, 20)
    finally:
        for pid in (parent.pid, *filter(running, workers)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()


def test_bundles_hold_out_more_and_predict_the_same_rows(measured_table):
    table = load(measured_table)
    alone = evaluation.architectures_of(table)
    together = evaluation.bundled(alone, 2)
    assert len(together) == 2
    parts = [part for split in together for part in split.parts]
    assert [part.group for part in parts] == [split.group for split in alone]
    for split in together:
        assert (split.held == np.logical_or.reduce([part.held for part in split.parts])).all()
        assert not (split.held & split.seen).any()
        assert all((part.seen | ~split.seen).all() for part in split.parts)
    assert evaluation.bundled(alone, len(alone)) == alone


def test_kinds_and_the_ends_of_sizes_are_held_out_too(measured_table):
    table = load(measured_table)
    errors = evaluation.cross_validate(table, ROOFLINE, "graph")["boosted"]
    assert set(errors) == set(evaluation.WAYS)
    kind, size = errors["kind"], errors["size"]
    assert (kind["group"] == kind["kind"]).all()
    assert (kind["distance"] == 3).all()
    assert len(kind) == (table["cache"] == "graph").sum()
    (ends,) = evaluation.size_splits(table)
    assert set(size["row"]) == set(np.flatnonzero(ends.held & (table["cache"] == "graph")))
    for name in set(table["kind"]):
        mine = (table["kind"] == name).to_numpy()
        moved = [sum(map(np.prod, row)) for row in table["inputs"] + table["outputs"]]
        inner = [m for m, one in zip(moved, mine & ends.seen, strict=True) if one]
        outer = [m for m, one in zip(moved, mine & ends.held, strict=True) if one]
        assert outer
        assert all(m < min(inner) or m > max(inner) for m in outer)
    assert (size["distance"] > 0).mean() > 0.5
