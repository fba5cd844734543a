"""The login page, as plain HTML: it needs no scripts and no session."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} · Rota</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{refresh}
<link rel="icon" href="/favicon.ico"><link rel="stylesheet" href="/_rota/style.css"></head>
<body class="login"><main class="card login-card">
<h1 class="brand"><span class="brand-mark" aria-hidden="true"></span>Rota</h1>
{body}</main></body></html>"""
_SINGLE_SIGN_ON = """<a class="button primary" href="/login/oidc{target}">Log in with {host}</a>
"""
_USERS = """<form method="post" action="/login{target}">
<label for="name">User name</label>
<input id="name" name="name" autocomplete="username" required maxlength="128"{focus}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="1024">
<button type="submit" class="button primary">Log in</button>
</form>
"""
_TOKEN = """<form method="post" action="/login{target}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required maxlength="200"{focus}>
<button type="submit" class="button{primary}">Log in{suffix}</button>
</form>
"""
_OR = '<p class="login-or" aria-hidden="true">or</p>\n'


def login_page(
    error: str = "", *, issuer_host: str | None = None, has_users: bool = False, target: str = "/", told: str = ""
) -> str:
    """Return the page with all ways to log in, and the error of the last attempt."""
    asked = "" if target == "/" else f"?next={quote(target, safe='')}"
    ways = []
    if issuer_host is not None:
        ways.append(_SINGLE_SIGN_ON.format(target=asked, host=escape(issuer_host)))
    if has_users:
        ways.append(_USERS.format(target=asked, focus=" autofocus"))
    only = not ways
    ways.append(
        _TOKEN.format(
            target=asked,
            focus=" autofocus" if only else "",
            primary=" primary" if only else "",
            suffix="" if only else " with a token",
        )
    )
    hint = "Log in with a token. An admin can create one with <code>rota token create</code>." if only else ""
    shown = f'<p class="trouble" role="alert">{escape(error)}</p>\n' if error else ""
    note = f"<p>{told}</p>\n" if told else f"<p>{hint}</p>\n" if hint else ""
    return _PAGE.format(title="Log in", refresh="", body=note + shown + _OR.join(ways))


def forward_page(target: str) -> str:
    """Return a page that goes on to one of this site's own pages.

    A redirect would continue the chain of requests that the provider began, which counts as another site's.
    """
    shown = escape(target)
    refresh = f'\n<meta http-equiv="refresh" content="0;url={shown}">'
    return _PAGE.format(
        title="Logged in", refresh=refresh, body=f'<p>Logged in. <a class="text-link" href="{shown}">Continue</a></p>'
    )


def logged_out_words(provider_url: str | None) -> str:
    """Return what the login page says after a logout, as HTML."""
    if provider_url is None:
        return "You are logged out."
    link = f'<a class="text-link" href="{escape(provider_url)}" rel="noreferrer">Log out there, too</a>'
    return f"You are logged out of Rota, but not of your identity provider. {link}."
