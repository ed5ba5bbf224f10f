"""Hooks of the site: tables of configs and commands, Markdown read as GitHub reads it, docstrings as Sphinx reads them."""

from __future__ import annotations

import re
from typing import Any

import griffe
from mkdocs.structure.pages import Page

GROUPS = {
    "model": "Models",
    "cluster": "Clusters",
    "scheduler": "Schedulers",
    "partition": "Partitions",
    "workload": "Workloads",
    "simulation": "Simulation settings",
    "cost_model": "Cost models",
    "family": "Families of task graphs",
    "experiment": "Presets of experiments",
    "calibration": "Presets of calibrations",
}
"""Config groups and their headings."""
_BLOCK = re.compile(r"([-*+] |\d+\. |\||```)")
_ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|attr|data|exc):<code>~?\.?")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put an empty line before lists, tables and code that follow a paragraph, which GitHub does not ask for; leave
    reports, which are long tables, out of the search.
    """
    if made := MADE.get(page.file.src_uri):
        markdown = re.sub(r"<!--.*?-->", lambda _: made(), markdown, count=1, flags=re.S)
    if page.file.src_uri.endswith("report.md"):
        page.meta["search"] = {"exclude": True}
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        opens = not fenced and _BLOCK.match(line)
        if opens and lines and lines[-1].strip() and not _BLOCK.match(lines[-1]):
            continued = lines[-1].startswith("  ") and not line.startswith(("|", "```"))
            if not continued:
                lines.append("")
        lines.append(line)
        fenced ^= line.lstrip().startswith("```")
    return "\n".join(lines)


def on_page_content(html: str, **_: Any) -> str:
    """Show names in docstrings (``:class:`Name```) as code."""
    return _ROLE.sub("<code>", html)


class Examples(griffe.Extension):
    """Docstrings head one example with ``Example:``; the parser knows ``Examples:``."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the heading."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M
            )


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def configs() -> str:
    """Every entry of every config group, a table each."""
    from experiments.runs import catalog

    lines = []
    for group, heading in GROUPS.items():
        entries = catalog.entries(group)
        sourced = any(entry.source for entry in entries)
        lines += ["", f"## {heading}: `{group}=`", ""]
        lines += ["| name | description |" + (" source |" if sourced else "")]
        lines += ["|---|---|" + ("---|" if sourced else "")]
        for entry in entries:
            row = f"| `{entry.name}` | {cell(entry.description)} |"
            lines.append(row + (f" {cell(entry.source)} |" if sourced else ""))
    return "\n".join(lines)


def commands() -> str:
    """Every command, what it does and its options."""
    from experiments.runs import help as helps

    lines = ["## Where a scenario is taken", "", "```", helps.SCENARIO + helps.EVERYWHERE + "```"]
    for name, said in helps.COMMANDS.items():
        lines += ["", f"## `{name}`", "", said.about, "", "```", f"hetsim {name} {said.usage}"]
        lines += [said.text.strip(), "```"] if said.text.strip() else ["```"]
        lines += ["It takes a scenario, too."] if said.scenario else []
    return "\n".join(lines)


MADE = {"reference/configs.md": configs, "reference/commands.md": commands}
"""Pages with a comment in the place of which a table is made."""
