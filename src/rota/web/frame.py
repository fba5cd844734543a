"""The frame of every page: navigation, the logged-in user, and the switch between light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import html, ui

from rota import __version__
from rota.web.page_context import PageContext
from rota.web.parts.palette import Palette
from rota.web.search import search

NAVIGATION = (
    ("/", "Overview", "space_dashboard"),
    ("/home", "Home", "home"),
    ("/jobs", "Jobs", "list_alt"),
    ("/sweeps", "Sweeps", "tune"),
    ("/cluster", "Cluster", "dns"),
    ("/timeline", "Timeline", "view_timeline"),
    ("/network", "Network", "hub"),
    ("/tenants", "Tenants", "groups"),
    ("/usage", "Usage", "bar_chart"),
    ("/alerts", "Alerts", "notifications"),
    ("/what-if", "What-if", "alt_route"),
    ("/truth", "Truth", "fact_check"),
    ("/submit", "Submit", "add_circle"),
    ("/templates", "Templates", "dashboard_customize"),
    ("/data-sets", "Data sets", "folder_open"),
    ("/audit-log", "Audit log", "history"),
)
THEMES = {"light": False, "dark": True}
_TOGGLE_THEME = """() => {
  const dark = !document.body.classList.contains('body--dark');
  document.cookie = `rota_theme=${dark ? 'dark' : 'light'}; path=/; max-age=31536000; samesite=lax`;
  Quasar.Dark.set(dark);
}"""


@contextmanager
def frame(context: PageContext, path: str) -> Iterator[None]:
    """Build the frame; elements created in the context become the page's content."""
    ui.add_head_html(f'<link rel="stylesheet" href="/_rota/style.css?{__version__}">')
    ui.add_head_html(f'<script defer src="/_rota/kept_input.js?{__version__}"></script>')
    ui.dark_mode(THEMES.get(context.request.cookies.get("rota_theme", "")))
    with html.a("Skip to content", href="#content").classes("skip"):
        pass
    with html.div().classes("shell"):
        with html.aside().classes("side"):
            with html.a(href="/").classes("brand"):
                html.span().classes("brand-mark").props("aria-hidden=true")
                html.span("Rota")
            pages = shown_pages(context)
            named = [*((target, name) for target, name, _ in pages), ("/compare", "Compare")]
            Palette(lambda text: search(context, text, named))
            with html.nav().props('aria-label="Pages"'):
                for target, name, icon in pages:
                    _link(target, name, icon, current=_is_current(target, path))
            _footer(context)
        with html.main(id="content").classes("content").props("tabindex=-1"):
            yield


def shown_pages(context: PageContext) -> list[tuple[str, str, str]]:
    """Return the pages that the visitor may open and that this manager has."""
    hidden = {
        "/network": context.service.scheduling.network is None,
        "/sweeps": context.service.sweeps is None,
        "/usage": context.service.accounts is None,
        "/alerts": context.service.alerts is None,
        "/submit": not context.may_submit,
        "/data-sets": context.service.snapshots is None,
        "/templates": not context.may_submit or context.service.templates is None,
        "/what-if": not context.may_study,
        "/audit-log": not context.is_admin,
    }
    return [each for each in NAVIGATION if not hidden.get(each[0])]


def _is_current(target: str, path: str) -> bool:
    return path == target or (target != "/" and path.startswith(f"{target}/"))


def _link(target: str, name: str, icon: str, *, current: bool) -> None:
    with html.a(href=target).classes("nav-link") as link:
        if current:
            link.props("aria-current=page")
        ui.icon(icon).props("aria-hidden=true")
        html.span(name)


def _footer(context: PageContext) -> None:
    principal = context.principal()
    with html.div().classes("side-foot"):
        ui.button(icon="contrast", color=None).props('flat round dense aria-label="Toggle dark mode"').classes(
            "quiet"
        ).on("click", js_handler=_TOGGLE_THEME)
        with html.div().classes("whoami"):
            html.span(principal.name).classes("whoami-name")
            html.span(principal.role.value).classes("muted")
        if context.service.access.required:
            with html.form(action="/logout", method="post"), html.button(type="submit").classes("link-button"):
                html.span("Log out")


@contextmanager
def heading(title: str, about: str = "") -> Iterator[None]:
    """Build the page title; elements created in the context become its buttons, on the right."""
    with html.header().classes("page-head"):
        with html.div():
            html.h1(title)
            if about:
                html.p(about).classes("muted")
        with html.div().classes("page-actions"):
            yield
