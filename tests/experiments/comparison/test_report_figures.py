"""Every figure of a report, of sweeps with and without the data for it."""

import io

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from rich.console import Console

from experiments.compare import compare_sweep
from experiments.comparison.analysis import Options
from simulator.errors import InvalidInput
from tests.experiments.synthetic_sweep import grid_rows, write_sweep

AXES = {
    "scheduler": [f"s{i:02d}" for i in range(12)],
    "scheduler.options.pricing": ["default", "per_edge"],
    "model.ccr": [0.1, 10],
    "model.heterogeneity": [1, 2, 4],
    "simulation.noise": ["none", "systematic(sigma=0.2)"],
}


def makespan(scheduler, pricing, ccr, heterogeneity, noise, seed):
    rng = np.random.default_rng([int(scheduler[1:]), int(ccr), heterogeneity, seed])
    skill = 1 + 0.01 * int(scheduler[1:]) * (-1 if ccr > 1 else 1)
    wrong = 1.0 if noise == "none" else 1.1 - 0.004 * int(scheduler[1:])
    return (1 + seed) * skill * wrong * (0.97 if pricing != "default" else 1) * rng.uniform(1, 1.05)


def compared(folder, axes, options=None, seeds=range(2), baseline=None, formula=makespan):
    rows, choices = grid_rows(formula, axes, seeds)
    write_sweep(folder, rows, name=folder.name)
    (folder / "grid.yaml").write_text(yaml.safe_dump({"cells": choices}))
    console = Console(file=io.StringIO(), width=100, highlight=False)
    index = compare_sweep(folder, baseline, console, options)
    return index.parent, console.file.getvalue()


@pytest.fixture(scope="module")
def large(tmp_path_factory, whole_figures):
    """24 schedulers on 12 models and settings: more than are drawn or coloured."""
    folder = tmp_path_factory.mktemp("large") / "large"
    return compared(folder, AXES, Options(map=("heterogeneity", "ccr")), baseline="s05")


FIGURES = ("profile", "pairs", "factors", "planning", "winners", "robustness", "gap")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_whole(large, name):
    report, _ = large
    stem = report / f"fig_{name}"
    pdf = stem.with_suffix(".pdf").read_bytes()
    # Type 42 fonts are embedded TrueType; /Type3 is what journals refuse.
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf
    with Image.open(stem.with_suffix(".png")) as image:
        assert image.width / 200 in (pytest.approx(3.33, abs=0.01), pytest.approx(7.0, abs=0.01))
        assert image.height / 200 <= 16
    caption = stem.with_suffix(".txt").read_text()
    assert "n = " in caption
    assert len(pd.read_csv(stem.with_suffix(".csv"))) > 0
    assert f'src="fig_{name}.png"' in (report / "index.html").read_text()


def test_captions_are_short(large):
    report, _ = large
    captions = {path.stem: path.read_text() for path in report.glob("fig_*.txt")}
    assert len(captions) >= 7
    assert {name: text for name, text in captions.items() if len(text.split()) > 80} == {}


def test_too_few_seeds_for_the_map_are_said(large):
    report, text = large
    said = "Too few seeds for the map of winners: no cell has the 8 instances that its test needs"
    assert said in " ".join(text.split())
    assert said in (report / "fig_winners.txt").read_text()
    assert said in (report / "index.html").read_text()


def test_figures_of_one_column_are_as_wide_and_cut_nothing_off(tmp_path, monkeypatch):
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    drawn = []
    saved = Figure.savefig

    def savefig(figure, *args, **kwargs):
        drawn.append(figure)
        return saved(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    axes = {
        "scheduler": ["s01", "s11", "dynamic_batching"],
        "model.ccr": [0.1, 10],
        "model.beta": [0.25, 0.5],
    }

    def formula(scheduler, ccr, beta, seed):
        return makespan("s05" if "_" in scheduler else scheduler, "", ccr, 2, "none", seed) * beta

    rows, choices = grid_rows(formula, axes, range(5), family="daggen", cost_model="given")
    write_sweep(tmp_path / "s", rows)
    (tmp_path / "s" / "grid.yaml").write_text(yaml.safe_dump({"cells": choices}))
    console = Console(file=io.StringIO(), width=100, highlight=False)
    report = compare_sweep(tmp_path / "s", "s01", console, style="column").parent
    names = {path.stem for path in report.glob("fig_*.png")}
    assert names == {f"fig_{n}" for n in (*FIGURES, "makespan") if n != "robustness"}
    for figure in drawn:
        assert figure.get_figwidth() == pytest.approx(3.33)
        assert figure.get_figheight() <= 9.05
        page = figure.bbox
        renderer = figure.canvas.get_renderer()
        for text in figure.findobj(Text):
            box = text.get_window_extent(renderer)
            if text.get_visible() and text.get_text().strip() and box.overlaps(page):
                assert text.get_fontsize() >= 5.0
                inside = (
                    box.x0 >= -1
                    and box.y0 >= -1
                    and box.x1 <= page.x1 + 1
                    and box.y1 <= page.y1 + 1
                )
                assert inside, text.get_text()
    # Each drawn graph is an instance of its own.
    assert "n = 20 drawn graphs" in (report / "fig_profile.txt").read_text()
    assert "n = 20 drawn graphs" in " ".join(console.file.getvalue().split())
    assert "95% interval over the seeds" in (report / "fig_makespan.txt").read_text()
    with pytest.raises(InvalidInput, match="no style=poster"):
        compare_sweep(tmp_path / "s", style="poster")


def test_many_schedulers_are_grey_or_in_the_data_and_the_caption_says_so(large):
    report, _ = large
    # 9 of 24 and the best device in colour; the baseline among them.
    assert "Grey: 15 more schedulers." in (report / "fig_profile.txt").read_text()
    assert "7 more schedulers are in the data." in (report / "fig_pairs.txt").read_text()
    pairs = pd.read_csv(report / "fig_pairs.csv")
    assert len(pairs) == 25 * 24
    assert len(pd.read_csv(report / "fig_planning.csv")) == 24
    assert "baseline" not in (report / "fig_pairs.txt").read_text()
    assert set(
        pd.read_csv(report / "table_pairs.csv")[["scheduler", "against"]].to_numpy().ravel()
    ) > {"s05"}


def test_nothing_is_left_out_unsaid(large, tmp_path):
    _, text = large
    assert "not drawn" not in text
    report, text = compared(
        tmp_path / "two", {"scheduler": ["a", "b"]}, formula=lambda scheduler, seed: 1.0 + seed
    )
    text = " ".join(text.split())
    assert "not drawn: paired differences (nothing but model and scheduler varies);" in text
    assert "map of winners (fewer than two numeric factors vary (map=x,y));" in text
    assert "robustness (no systematic error of the estimates varies)" in text
    assert not (report / "fig_winners.png").exists()
    page = (report / "index.html").read_text()
    assert "Not drawn: paired differences" in page


def test_the_map_is_the_one_asked_for(large):
    report, _ = large
    frame = pd.read_csv(report / "fig_winners.csv")
    assert list(frame.columns[:2]) == ["heterogeneity", "ccr"]
    assert len(frame) == 6
    # The last is the fastest at a high CCR, the first at a low one.
    assert set(frame[frame["ccr"] > 1]["winner"]) <= {
        f"s{i:02d}(pricing=per_edge)" for i in range(7, 12)
    }
    assert set(frame[frame["ccr"] < 1]["winner"]) <= {f"s0{i}(pricing=per_edge)" for i in range(6)}


def test_options_that_name_nothing_are_refused_before_anything_is_written(tmp_path):
    for options, message in (
        (Options(map=("ccr", "fat")), "'ccr' is not what varies"),
        (Options(unit="model"), "There is no unit=model; known: contest, seed"),
        (Options(error="sigma"), "'sigma' is not what varies"),
    ):
        with pytest.raises(InvalidInput, match=message):
            compared(
                tmp_path / "s",
                {"scheduler": ["a", "b"]},
                options,
                formula=lambda s, seed: 1.0 + seed,
            )
        assert not (tmp_path / "s" / "report").exists()


def test_many_models_are_summed_up_in_the_terminal(tmp_path):
    axes = {"scheduler": ["a", "b", "c"], "model.ccr": list(range(1, 15))}

    def formula(scheduler, ccr, seed):
        return ccr * (1 + seed) * {"a": 1.0, "b": 1.1, "c": 1.1 + 0.01 * (ccr % 3)}[scheduler]

    report, text = compared(tmp_path / "many", axes, seeds=range(6), formula=formula)
    lines = text.splitlines()
    assert lines[0].startswith("scheduler  ratio to best  [95%]")
    assert lines[1].split()[:2] == ["a", "1.000"]
    assert "longer, p .0" in lines[2]
    assert "14 models and settings (ccr, scheduler vary), each in table_main.csv" in text
    assert len(lines) < 45
    assert max(len(line) for line in lines if "wrote" not in line) <= 100
    assert len(pd.read_csv(report / "table_main.csv")) == 42
