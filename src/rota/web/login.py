"""The page on which one gives one's token: plain HTML, so that it needs nothing else."""

from __future__ import annotations

from html import escape

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Rota</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/favicon.ico"><link rel="stylesheet" href="/_rota/style.css"></head>
<body class="login"><main class="card login-card">
<h1 class="brand"><span class="brand-mark" aria-hidden="true"></span>Rota</h1>
<p>This manager asks for a token. An admin makes one with <code>rota token create</code>.</p>
{trouble}<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus maxlength="200">
<button type="submit" class="button primary">Log in</button>
</form></main></body></html>"""


def login_page(trouble: str = "") -> str:
    """The page, with what was wrong the last time."""
    shown = f'<p class="trouble" role="alert">{escape(trouble)}</p>' if trouble else ""
    return _PAGE.format(trouble=shown)
