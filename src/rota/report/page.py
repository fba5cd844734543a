"""A page of figures as one HTML file that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CSS = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #222;
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif; }
main, footer { max-width: 1200px; margin: 0 auto; padding: 0 24px; }
h1 { font-size: 26px; margin: 28px 0 4px; }
h2 { font-size: 19px; margin: 40px 0 8px; border-bottom: 1px solid #ddd; padding-bottom: 4px; }
p { margin: 4px 0 10px; color: #444; }
section.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 24px; }
figure { margin: 0 0 18px; min-width: 0; break-inside: avoid; }
figcaption { font-size: 13px; color: #555; padding-left: 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { padding: 5px 6px; text-align: left; border-bottom: 1px solid #e4e4e4; vertical-align: baseline; }
th { vertical-align: bottom; }
th { border-bottom: 2px solid #888; font-weight: 600; line-height: 1.25; }
th small { font-weight: 400; color: #666; }
td:first-child { overflow-wrap: anywhere; min-width: 130px; font-weight: 600; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.best { background: #e3f0fa; font-weight: 700; }
.best::before { content: '★ '; color: #0072b2; font-size: 10px; }
details { margin: 10px 0; }
summary { cursor: pointer; font-weight: 600; padding: 4px 0; }
footer { margin-top: 40px; padding-top: 12px; padding-bottom: 32px; border-top: 1px solid #ddd;
  font-size: 13px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
@media (max-width: 900px) { section.pair { grid-template-columns: 1fr; } }
"""

# The page can be read before Plotly, at its end, is loaded. A figure is drawn when it is about to be seen: a folded one
# has no width to fit into. Plotly's offer to send figures to its makers is turned off: a report stays where it is.
_DRAW = """
const drawn = new Set();
function draw(box) {
  if (drawn.has(box.id)) return;
  drawn.add(box.id);
  const spec = JSON.parse(document.getElementById(box.id + "-data").textContent);
  Plotly.newPlot(box, spec.data, spec.layout, {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  });
}
const near = new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) draw(entry.target);
}, {rootMargin: "400px"});
const boxes = document.querySelectorAll("div.plot");
for (const box of boxes) near.observe(box);
addEventListener("beforeprint", () => {
  for (const box of boxes) if (box.offsetParent) draw(box);
});
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure, the name of the file it is written to, and the line that says what it shows."""

    name: str
    figure: go.Figure
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page: a heading, a line of text, ready HTML, and figures in one or two columns.

    With `folds`, each figure can be folded away under its line, and all but the first are.
    """

    title: str
    text: str = ""
    html: str = ""
    plots: Sequence[Plot] = ()
    pairs: bool = False
    folds: Sequence[str] = ()


def page(title: str, lead: str, sections: Sequence[Section], facts: Mapping[str, str], command: str) -> str:
    """The whole document. Titles, texts and facts are plain text; `html` of a section is taken as it is."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    body = "\n".join(_section(index, section) for index, section in enumerate(sections))
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_CSS}</style>'
        f"</head>\n<body><main><h1>{escape(title)}</h1><p>{escape(lead)}</p>\n"
        f"{body}\n</main>\n<footer><dl><dt>command</dt><dd><code>{escape(command)}</code></dd>{told}</dl></footer>\n"
        f"<script>{script}</script>\n<script>{_DRAW}</script></body></html>\n"
    )


def _section(number: int, section: Section) -> str:
    plots = [_plot(f"plot-{number}-{index}", plot) for index, plot in enumerate(section.plots)]
    if section.folds:
        plots = [
            f"<details{'' if index else ' open'}><summary>{escape(label)}</summary>{plot}</details>"
            for index, (label, plot) in enumerate(zip(section.folds, plots, strict=True))
        ]
    inside = "\n".join(plots)
    if section.pairs:
        inside = f'<section class="pair">{inside}</section>'
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    return f"<h2>{escape(section.title)}</h2>{text}{section.html}\n{inside}"


def _plot(name: str, plot: Plot) -> str:
    height = plot.figure.layout.height
    return (
        f'<figure><div class="plot" id="{name}" style="height:{height}px"></div>'
        f'<script type="application/json" id="{name}-data">{_script_safe(plot.figure)}</script>'
        f"<figcaption>{escape(plot.caption)}</figcaption></figure>"
    )


def _script_safe(figure: go.Figure) -> str:
    """A figure as JSON in which nothing can end the script element around it."""
    text: str = figure.to_json()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
