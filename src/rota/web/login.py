"""The login page, as plain HTML: it needs no scripts and no session."""

from __future__ import annotations

from html import escape

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Rota</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/favicon.ico"><link rel="stylesheet" href="/_rota/style.css"></head>
<body class="login"><main class="card login-card">
<h1 class="brand"><span class="brand-mark" aria-hidden="true"></span>Rota</h1>
<p>Log in with a token. An admin can create one with <code>rota token create</code>.</p>
{error}<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus maxlength="200">
<button type="submit" class="button primary">Log in</button>
</form></main></body></html>"""


def login_page(error: str = "") -> str:
    """Return the page, with the error of the last attempt."""
    shown = f'<p class="trouble" role="alert">{escape(error)}</p>' if error else ""
    return _PAGE.format(error=shown)
