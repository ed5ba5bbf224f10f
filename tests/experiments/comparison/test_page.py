"""The report's page: what it refers to is there, texts stay texts, and in a browser it can be worked with."""

import html
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from experiments.compare import compare_sweep
from experiments.comparison import page, report
from experiments.comparison.cell_table import cell_table
from experiments.comparison.contests import BEST_DEVICE
from experiments.comparison.leaderboard import standings
from experiments.comparison.statistics import TIE
from experiments.plots import interactive
from experiments.plots.interactive import (
    GAPS,
    MAKESPANS,
    PROFILE,
    gantt_figure,
    gap_figure,
    interactive_figures,
    makespan_figure,
)
from experiments.plots.looks import scheduler_styles
from experiments.plots.style import with_suffix
from experiments.runs.atomic import write_text
from simulator.model.trace import Trace
from tests.experiments.comparison.test_leaderboard import row
from tests.experiments.synthetic_sweep import grid_rows, sweep_rows, write_sweep

HOSTILE = "<b>x</b>"
WORSE = "</script><script>alert(1)</script>&amp;"
FAILED = "it <img src=x onerror=alert(1)> broke"


class Page(HTMLParser):
    """Ids, references, scripts and tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags, self.scripts, self.text = [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs[key] for key in ("src", "href") if key in attrs]
        if tag == "script":
            self.scripts.append([attrs, ""])

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1][1] += data
        self.text += data

    @property
    def islands(self):
        return {a["id"]: json.loads(t) for a, t in self.scripts if a.get("type")}


def undrawn(*arguments, **_):
    """Four files in place of a figure: drawing is tested elsewhere."""
    stem = next(a for a in arguments if isinstance(a, Path))
    return [write_text(with_suffix(stem, s), "drawn") for s in (".pdf", ".png", ".csv", ".txt")]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Three schedulers on two models, of which names and an error are markup; every cell kept its trace."""
    folder = tmp_path_factory.mktemp("sweeps") / "hostile"
    models, names = (("branches", 8, 4), ("narrow", 6, 2)), ("fcfs", "heft", "sufferage")
    rows = sweep_rows(models, names, draws=5, cells=folder / "cells")
    rows = rows.replace({"scheduler": {"fcfs": HOSTILE}, "model": {"narrow": WORSE}})
    failed = row("donf", np.nan, model=WORSE, cluster="cpu2_gpu1", status="failed", error=FAILED)
    rows = pd.concat([rows, pd.DataFrame([{**failed, "cell": "lost"}])])
    rows = rows.sort_values("cell", ignore_index=True)  # the failed one in the middle
    for cell, scheduler in zip(rows["cell"], rows["scheduler"], strict=True):
        (folder / "cells" / cell).mkdir(exist_ok=True)
        (folder / "cells" / cell / "command.txt").write_text(f"simulate  'a b' {scheduler}\n")
        (folder / "cells" / cell / "result.json").write_text("{}")
    write_sweep(folder, rows, name="hostile")
    (folder / "failures.csv").write_text("cell\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in vars(report) if name.startswith("draw_")]:
            patch.setattr(report, name, undrawn)
        return folder, rows, compare_sweep(folder)


def has_plotly():
    return interactive.plotly_script() is not None


needs_plotly = pytest.mark.skipif(
    not has_plotly(), reason="needs plotly: pip install 'hetsim[report]'"
)


def test_everything_that_the_page_refers_to_is_there(sweep):
    folder, _, index = sweep
    found = Page(index.read_text())
    assert len(set(found.ids)) == len(found.ids)
    for link in found.links:
        if link.startswith("#cell="):
            assert link.removeprefix("#cell=") in found.islands["cells-data"]["cells"]
        elif link.startswith("#"):
            assert link[1:] in found.ids
        else:
            assert (index.parent / link).is_file(), link
    contents = {link for link in found.links if link.startswith("#") and "=" not in link}
    assert {"#answer", "#table_main", "#figure-1", "#cells", "#failures", "#methods"} < contents
    cells = found.islands["cells-data"]
    assert sum(cells["trace"]) == 6
    assert sum(cells["result"]) == 7
    for cell, trace in zip(cells["cells"], cells["trace"], strict=True):
        assert (folder / "cells" / quote(cell) / "trace.json").is_file() == bool(trace)
        assert (index.parent / "gantt" / f"{cell}.js").is_file() == (cell in cells["gantt"])
    assert len(cells["gantt"]) == (6 if has_plotly() else 0)


def test_names_and_errors_are_text(sweep):
    _, _, index = sweep
    text = index.read_text()
    found = Page(text)
    assert HOSTILE in found.text  # as a reader sees it
    assert FAILED in found.text
    assert not {"b", "onerror"} & set(found.tags)
    assert sum(tag == "img" for tag in found.tags) == text.count("<img loading")
    code = [script for attributes, script in found.scripts if not attributes.get("type")]
    assert len(code) == (2 if has_plotly() else 1)
    assert not any("alert(1)" in script for script in code)
    names = next(c for c in found.islands["cells-data"]["columns"] if c["name"] == "scheduler")
    assert HOSTILE in names["levels"]
    for path in index.parent.glob("gantt/*.js"):
        assert "<" not in path.read_text()


def test_the_table_holds_the_cells_figures(sweep):
    folder, rows, _ = sweep
    table = cell_table(rows, standings(rows), folder / "cells")
    columns = {column["name"]: column for column in table["columns"]}
    # Cluster, workload and seeds do not vary.
    assert list(columns)[:3] == ["model", "scheduler", "status"]
    assert not {"cluster", "profiles", "workload", "seed.workload"} & set(columns)
    done, lost = np.flatnonzero(rows["status"] == "done"), rows["cell"].tolist().index("lost")

    def shown(name, key="values"):
        assert columns[name][key][lost] is None
        return [columns[name][key][n] for n in done]

    found = rows.iloc[done]
    assert shown("makespan [ms]") == pytest.approx(1e3 * found["makespan_s"], rel=1e-3)
    assert shown("makespan [ms]", "low") == pytest.approx(1e3 * found["makespan_low_s"], rel=1e-3)
    assert shown("makespan [ms]", "high") == pytest.approx(1e3 * found["makespan_high_s"], rel=1e-3)
    best = found.groupby("model")["makespan_s"].transform("min")
    assert shown("ratio to best") == pytest.approx(found["makespan_s"] / best, rel=1e-3)
    gap = 100 * (found["makespan_s"] / found["bound_s"] - 1)
    assert shown("gap to bound [%]") == pytest.approx(gap, rel=1e-3)
    assert table["errors"] == {lost: FAILED}
    for words, scheduler in zip(table["commands"], rows["scheduler"], strict=True):
        assert " ".join(table["words"][w] for w in words) == f"simulate  'a b' {scheduler}"


def test_a_cell_takes_little_room(tmp_path):
    axes = {"scheduler": [f"s{n}" for n in range(5)], "model.ccr": list(range(10))}
    rows, _ = grid_rows(lambda scheduler, ccr, seed: 1.234567 + seed, axes, range(5))
    for cell, scheduler in zip(rows["cell"], rows["scheduler"], strict=True):
        (tmp_path / cell).mkdir()
        text = f"python -m experiments.simulate family=daggen scheduler={scheduler} seed.workload={cell}"
        (tmp_path / cell / "command.txt").write_text(text)
    table = cell_table(rows, standings(rows), tmp_path)
    assert len(json.dumps(table, separators=(",", ":"))) < 110 * len(rows)


def test_figures_are_of_the_sweeps_numbers_and_the_static_figures_colours(sweep):
    _, rows, _ = sweep
    table = standings(rows)
    styles = scheduler_styles([*table.schedulers, BEST_DEVICE])
    figures = interactive_figures(table, styles)
    assert list(figures) == [MAKESPANS, PROFILE, GAPS]
    points = {
        t["legendgroup"]: t
        for t in figures[MAKESPANS]["data"]
        if "legendgroup" in t and t["mode"] == "markers"
    }
    hostile = points[HOSTILE]
    assert hostile["name"] == html.escape(HOSTILE)
    assert points["heft"]["name"] == "HEFT"
    found = rows[rows["scheduler"] == HOSTILE].sort_values("model")
    shown = dict(zip((c["model"] for c in hostile["customdata"]), hostile["x"], strict=True))
    assert shown == pytest.approx(
        dict(zip(found["model"], 1e3 * found["makespan_s"], strict=True)), rel=1e-5
    )
    assert hostile["marker"]["color"] == styles[HOSTILE].colour
    assert "&lt;b&gt;x&lt;/b&gt;" in hostile["text"][0]
    assert re.search(r"95% interval \[[\d.]+, [\d.]+\]", hostile["text"][0])
    assert HOSTILE not in json.dumps([t.get("text") for t in figures[MAKESPANS]["data"]])
    whiskers = next(t for t in figures[MAKESPANS]["data"] if t["mode"] == "lines")
    assert whiskers["x"][2] is None
    ratios = {t["name"]: t["x"] for t in figures[GAPS]["data"] if t["mode"] == "markers"}
    bounds = {c.model: c.bound_s for c in table.contests}
    expected = [
        found.set_index("model").loc[model, "makespan_s"] / bounds[model] for model in shown
    ]
    assert ratios[html.escape(HOSTILE)] == pytest.approx(expected, rel=1e-5)
    for line in figures[PROFILE]["data"]:
        name = line["legendgroup"]
        everyone = table.instances.with_best_device(BEST_DEVICE)
        column = everyone.makespans[:, everyone.schedulers.index(name)]
        least = everyone.makespans.min(axis=1) if line["xaxis"] == "x" else everyone.bound_s
        ratios = np.where(np.abs(column / least - 1) < TIE, 1, column / least)
        for ratio, share in zip(line["x"], line["y"], strict=True):
            assert share == pytest.approx((ratios <= ratio * (1 + 1e-5)).mean())


def test_many_models_are_boxes_of_schedulers_and_their_quartiles():
    axes = {"scheduler": ["a", "b"], "model.ccr": list(range(1, 62))}
    rows, _ = grid_rows(lambda scheduler, ccr, seed: ccr * (1 + (scheduler == "b")), axes, [0])
    table = standings(rows)
    styles = scheduler_styles(["a", "b", BEST_DEVICE])
    assert len(makespan_figure(table, styles)["layout"]["yaxis"]["ticktext"]) == 60
    boxes = {box["name"]: box for box in gap_figure(table, styles)["data"]}
    assert boxes["a"]["type"] == "box"
    keys = ("lowerfence", "q1", "median", "q3", "upperfence")
    assert [boxes["b"][key][0] for key in keys] == [4, 64, 124, 184, 244]


def test_a_gantt_has_a_bar_for_each_execution_and_transfer(sweep):
    folder, rows, index = sweep
    cell = rows["cell"][0]
    trace = Trace.load(folder / "cells" / cell)
    figure = gantt_figure(trace)
    assert sum(len(bar["x"]) for bar in figure["data"] if bar["name"] != "transfer") == len(
        trace.executions["start"]
    )
    assert sum(len(bar["x"]) for bar in figure["data"]) == len(trace.executions["start"]) + len(
        trace.transfers["start"]
    )
    ends = [b + x for bar in figure["data"] for b, x in zip(bar["base"], bar["x"], strict=True)]
    assert max(ends) == pytest.approx(1e3 * trace.makespan, rel=1e-4)
    if has_plotly():
        text = (index.parent / "gantt" / f"{cell}.js").read_text()
        text = text.removeprefix("gantt(").removesuffix(");\n")
        assert json.loads(f"[{text}]") == [cell, figure]


@needs_plotly
def test_plotly_knows_every_property(sweep):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    folder, rows, _ = sweep
    table = standings(rows)
    styles = scheduler_styles([*table.schedulers, BEST_DEVICE])
    trace = Trace.load(folder / "cells" / rows["cell"][0])
    boxes = interactive._gap_boxes(table.instances, styles)
    for figure in (*interactive_figures(table, styles).values(), gantt_figure(trace), boxes):
        graph_objects.Figure(figure)  # raises on a property or a value that there is not


def test_without_plotly_the_page_has_the_pictures_and_says_what_to_install(
    sweep, monkeypatch, tmp_path
):
    folder, rows, index = sweep
    monkeypatch.setattr(page, "plotly_script", lambda: None)
    table = standings(rows)
    cells = cell_table(rows, table, folder / "cells")
    (tmp_path / "gantt").mkdir()
    (tmp_path / "gantt" / "old.js").write_text("")
    found = page.interactive(cells, table, {}, tmp_path, folder / "cells")
    assert not list(tmp_path.glob("gantt/*"))
    section = page.Section(GAPS, (index.with_name("fig_gap"),))
    text = page.render(table, {}, "t", [], {}, [section], "", interaction=found)
    assert "pip install &#39;hetsim[report]&#39;" in text
    assert 'src="fig_gap.png"' in text
    assert "<details>" not in text
    assert len(text) < 60_000


PROBE = """
<pre id="probe"></pre><script>
const said = [], failed = [], wait = ms => new Promise(done => setTimeout(done, ms));
addEventListener("error", event => failed.push(event.message));
Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => { window.copied = text; }}});
const texts = (selector) => [...document.querySelectorAll(selector)].map(e => e.textContent);
const column = name => [...document.querySelectorAll(".cells thead button")].findIndex(e => e.textContent === name);
const shown = name => [...document.querySelectorAll(".cells tbody tr")].map(e => e.cells[column(name) + 1].textContent);
const filter = (name, text) => {
  const box = document.querySelectorAll(".cells th input")[column(name)];
  box.value = text; box.dispatchEvent(new Event("input"));
};
addEventListener("load", async () => {
  try {
    await wait(500);
    const heading = document.querySelectorAll(".cells thead button")[column("makespan [ms]")];
    const all = {unsorted: shown("scheduler"), count: texts("#count")};
    heading.click(); all.up = shown("makespan [ms]");
    heading.click(); all.down = shown("makespan [ms]");
    filter("scheduler", "=<b>x</b>"); all.exact = shown("scheduler");
    filter("scheduler", "HEF"); all.word = shown("scheduler");
    filter("scheduler", ""); filter("ratio to best", "<=1"); all.bound = shown("ratio to best");
    filter("ratio to best", "");
    document.querySelector(".cells button.copy").click(); await wait(50); all.copied = window.copied;
    location.hash = "#cell=lost"; await wait(50);
    all.failed = texts(".cells .detail .failed");
    document.querySelector(".cells button.gantt").click(); await wait(1500);
    all.gantt = document.querySelectorAll(".detail .barlayer path").length;
    all.figures = [...document.querySelectorAll("[data-figure]")].map(e => e.querySelectorAll(".trace").length);
    all.legend = texts("[data-figure] .legendtext");
    if (window.Plotly) {
      document.querySelector("[data-figure]").emit("plotly_click", {points: [{customdata: {scheduler: "heft"}}]});
      all.clicked = shown("scheduler");
    }
    all.network = performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("file:"));
    all.bold = document.querySelectorAll(".cells tbody td b").length;
    said.push(all);
  } catch (error) { failed.push(String(error)); }
  document.getElementById("probe").textContent = JSON.stringify({said, failed});
});
</script>
"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")


def browser():
    return os.environ.get("HETSIM_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)


@needs_plotly
def test_the_page_works_in_a_browser(sweep, tmp_path):
    if browser() is None:
        pytest.skip(f"no headless Chromium: HETSIM_BROWSER or one of {', '.join(BROWSERS)}")
    _, rows, index = sweep
    probed = index.with_name("probed.html")
    probed.write_text(index.read_text().replace('<h1 id="answer">', PROBE + '<h1 id="answer">', 1))
    try:
        dom = subprocess.run(
            [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
             f"--user-data-dir={tmp_path}", "--window-size=1400,1000", "--dump-dom", probed.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip
    finally:
        probed.unlink()
    answer = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', dom)[1]))
    assert answer["failed"] == []
    (said,) = answer["said"]
    assert said["unsorted"] == rows["scheduler"].tolist()
    assert said["count"] == ["7 of 7 cells, page 1 of 1 "]
    makespans = [float(text.split()[0]) for text in said["up"][:6]]
    assert makespans == sorted(makespans)
    assert makespans == pytest.approx(sorted(1e3 * rows["makespan_s"].dropna()), rel=1e-3)
    # What has none is last in both directions.
    assert said["up"][6] == said["down"][6] == "–"
    assert said["down"][:6] == said["up"][5::-1]
    assert said["exact"] == [HOSTILE] * 2
    assert said["word"] == ["heft"] * 2
    assert said["bound"] == ["1", "1"]
    assert said["copied"].startswith("simulate  'a b' ")
    assert said["failed"] == [FAILED]
    assert said["gantt"] > 10
    assert all(count > 2 for count in said["figures"])
    assert len(said["figures"]) == 3
    assert HOSTILE in said["legend"]
    assert said["clicked"] == ["heft"] * 2
    assert said["network"] == []
    assert said["bold"] == 0
