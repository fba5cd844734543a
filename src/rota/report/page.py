"""The report as one self-contained HTML file, from a Jinja2 template that escapes every value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rota.report.summary_table import SummaryTable

if TYPE_CHECKING:
    import jinja2
    import markupsafe
    import plotly.graph_objects as go

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure, the name of the file that it is written to, and its caption."""

    name: str
    figure: go.Figure
    caption: str

    @property
    def height(self) -> int:
        """The figure's height in pixels."""
        return int(self.figure.layout.height)

    @property
    def json(self) -> markupsafe.Markup:
        """The figure as JSON in which nothing can end the script element around it."""
        import markupsafe

        text: str = self.figure.to_json()
        return markupsafe.Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page: a heading, a paragraph, tables, and figures in one or two columns.

    With `folds`, each figure can be folded under its label, and all but the first are.
    """

    title: str
    text: str = ""
    tables: Sequence[SummaryTable] = ()
    plots: Sequence[Plot] = ()
    pairs: bool = False
    folds: Sequence[str] = ()


def page(title: str, lead: str, sections: Sequence[Section], facts: Mapping[str, str], command: str) -> str:
    """The whole document. All texts are plain text; the template escapes them."""
    import markupsafe
    from plotly.offline import get_plotlyjs

    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            lead=lead,
            sections=sections,
            facts=facts,
            command=command,
            plotly=markupsafe.Markup(get_plotlyjs()),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
