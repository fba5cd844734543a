"""What MkDocs is told about Rota: pages that are generated, anchors as on GitHub, links that leave `docs/`.

A page for each policy is made of its declaration and one simulation. The changelog and the guide for contributors stand
at the root of the repository and become pages here. Links to other files of the repository, such as tests, become
plain text: the site has to be whole without the repository.
"""

from __future__ import annotations

import posixpath
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]

from policy_pages import policy_pages

from docs.pages import anchor
from rota import __version__
from rota.cli.study.schema import schema

PROJECT = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "README.md": "index.md",
}
"""Files at the root of the repository, and the pages that they become."""
_LINK = re.compile(r"(?<!\!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_HEADLESS = re.compile(r"<thead>\s*<tr>(?:\s*<th[^>]*></th>)+\s*</tr>\s*</thead>\n?")
_EMPTY_HEADER = re.compile(r"<th([^>]*)></th>")
_NESTED = re.compile(r'<nav class="md-nav" aria-label="[^"]*">')
_made: dict[str, str] = {}


def on_config(config: Any) -> Any:
    """Use GitHub's anchors, and list pages that come by the dozen; have no page that only a server would show."""
    config.theme.static_templates.discard("404.html")
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, separator: anchor(text)
    _made.update(policy_pages())
    _made.update(
        {page: (ROOT / name).read_text(encoding="utf-8") for name, page in PROJECT.items() if page != "index.md"}
    )
    decisions = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/decisions").glob("*.md"))
    policies = ["reference/policies.md", *(page for page in _made if page.startswith("policies/"))]
    _fill(config.nav, "Policies", policies)
    _fill(config.nav, "Decisions", decisions)
    return config


def _fill(nav: list[Any], title: str, pages: list[str]) -> None:
    for entry in nav:
        if isinstance(entry, dict):
            for name, below in entry.items():
                if name == title:
                    below[:] = pages
                elif isinstance(below, list):
                    _fill(below, title, pages)


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and the schemas of users' files for editors."""
    for name, text in _made.items():
        files.append(File.generated(config, name, content=text))
    with tempfile.TemporaryDirectory() as folder:
        schema(out=Path(folder))
        for path in sorted(Path(folder).iterdir()):
            text = path.read_text(encoding="utf-8")
            files.append(File.generated(config, f"schemas/{path.name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at pages of the site."""
    source = page.file.src_uri
    at_root = {page: name for name, page in PROJECT.items()}
    here = at_root.get(source) if source in _made else f"docs/{source}"
    fences = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if number % 2 else _LINK.sub(lambda found: _link(found, here or source, source), part)
        for number, part in enumerate(fences)
    )


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Tables whose header is empty have none, and an empty corner is a cell: a screen reader would read out nothing."""
    return _EMPTY_HEADER.sub(r"<td\1></td>", _HEADLESS.sub("", html))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Mend for screen readers what the theme leaves, and tell the page its version.

    The search dialog gets a name. A section of the table of contents is no place of its own to navigate to: sections
    of one name, such as those of the changelog, could not be told apart.
    """
    root = "../" * (page.url.count("/") + 1)
    version = f'<meta name="rota-version" content="{__version__}" data-root="{root}">'
    about = f'{version}<script src="{root}versions.js"></script>'
    named = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    return _NESTED.sub('<nav class="md-nav" role="none">', named).replace("</head>", f"{about}</head>", 1)


def _link(found: re.Match[str], here: str, source: str) -> str:
    """A link of a page that lies at `here` in the repository and at `source` on the site."""
    text, target = found[1], found[2]
    if re.match(r"[a-z]+:|#", target):
        return found[0]
    name, mark, rest = target.partition("#")
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(here), name))
    there = PROJECT.get(inside) or (inside.removeprefix("docs/") if inside.startswith("docs/") else None)
    if source.startswith("policies/") or there is None or there.startswith("notebooks/"):
        return found[0] if source.startswith("policies/") else text
    return f"[{text}]({posixpath.relpath(there, posixpath.dirname(source) or '.')}{mark}{rest})"
