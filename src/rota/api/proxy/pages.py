"""The few pages of the manager at origins of jobs, and beside them: plain HTML without scripts."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, JSONResponse, Response

from rota.api.guard.cross_site import NO_SCRIPTS

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Rota</title>{head}
<meta name="viewport" content="width=device-width"></head>
<body style="font:16px system-ui,sans-serif;max-width:36rem;margin:4rem auto;padding:0 1rem"><h1>Rota</h1>
<p>{text}</p>{link}</body></html>"""
_HEADERS = {
    **NO_SCRIPTS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def arrival(target: str) -> Response:
    """Send a browser on to a page of the same origin, so that it brings along the cookie that it has just got."""
    shown = escape(target, quote=True)
    head = f'<meta http-equiv="refresh" content="0;url={shown}">'
    link = f'<p><a href="{shown}">Go on</a></p>'
    return HTMLResponse(_PAGE.format(head=head, text="One moment.", link=link), headers=_HEADERS)


def refusal(text: str, status: int, *, is_page: bool, link: str = "") -> Response:
    """Answer with one sentence: a page for people, with a link where there is a way on; JSON for scripts."""
    if not is_page:
        return JSONResponse({"error": text}, status_code=status, headers={"Cache-Control": "no-store"})
    shown = f'<p><a href="{escape(link, quote=True)}">Open it again</a></p>' if link else ""
    page = _PAGE.format(head="", text=escape(text), link=shown)
    return HTMLResponse(page, status_code=status, headers=_HEADERS)
