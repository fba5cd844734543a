"""Answers requests to log in and out: with a token, a password, or single sign-on."""

from __future__ import annotations

import secrets
from urllib.parse import parse_qs, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rota.api.access import Unknown, digest_of
from rota.api.identity.attempts import TooManyLogins
from rota.api.identity.rights import LoginRefused
from rota.api.identity.routes import source_of
from rota.api.service import Service
from rota.core.errors import RotaError, Unavailable
from rota.web.login import forward_page, logged_out_words, login_page
from rota.web.sessions import COOKIE, DEVICE_COOKIE, LIFETIME_S, LOGIN_COOKIE, SECURE_COOKIE, Sessions, Visitor

MAX_LOGIN_BYTES = 8192
MAX_QUERY = 8192
LOGIN_PATHS = ("/login", "/logout", "/login/oidc", "/login/callback")
PENDING_S = 600
DEVICE_S = 180 * 86400


class LoginRequests:
    """The login pages of a manager."""

    def __init__(self, service: Service, sessions: Sessions) -> None:
        self._service = service
        self._sessions = sessions

    async def answer(self, request: Request) -> Response:
        """Answer a request to one of the login paths."""
        if len(request.url.query) > MAX_QUERY:
            return self._page("the address is too long", 400)
        match request.url.path, request.method:
            case "/logout", "POST":
                return await self._log_out(request)
            case "/login/oidc", "GET":
                return await self._begin(request)
            case "/login/callback", "GET":
                return await self._finish(request)
            case "/login", "POST":
                return await self._log_in(request)
            case "/login", _:
                visitor: Visitor = request.scope["rota.visitor"]
                target = own_page(request.query_params.get("next"))
                return RedirectResponse("/", status_code=303) if visitor.is_known() else self._page("", 200, target)
            case _:
                return RedirectResponse("/", status_code=303)

    def _page(self, error: str, status: int, target: str = "/", told: str = "") -> Response:
        logins = self._service.logins
        host = None if logins.issuer is None else urlsplit(logins.issuer).hostname
        page = login_page(error, issuer_host=host, has_users=logins.has_users, target=target, told=told)
        return HTMLResponse(page, status_code=status)

    # -- token or password -----------------------------------------------------------------------

    async def _log_in(self, request: Request) -> Response:
        target = own_page(request.query_params.get("next"))
        form = parse_qs((await request.body())[:MAX_LOGIN_BYTES].decode("utf-8", "replace"), max_num_fields=10)
        try:
            digest = await self._digest(request, {name: values[0] for name, values in form.items()})
        except TooManyLogins as error:
            refused = self._page(str(error), 429, target)
            refused.headers["Retry-After"] = str(error.retry_s)
            return refused
        except (Unknown, LoginRefused) as error:
            return self._page(str(error), 401, target)
        except RotaError as error:
            return self._page(str(error), 422, target)
        answer = self._logged_in(request, digest, RedirectResponse(target, status_code=303))
        if "name" in form:
            self._keep_cookie(request, answer, DEVICE_COOKIE, self._service.logins.new_mark(form["name"][0][:128]))
        return answer

    def _keep_cookie(self, request: Request, answer: Response, name: str, value: str) -> None:
        """Let a browser keep a value that it shows to the login pages only."""
        secure = self.is_secure(request)
        answer.set_cookie(name, value, max_age=DEVICE_S, path="/login", httponly=True, samesite="strict", secure=secure)

    async def _digest(self, request: Request, form: dict[str, str]) -> str:
        """Return the digest of the token or session that a form logs in with."""
        logins, source = self._service.logins, source_of(request)
        if "name" in form:
            request.state.claimed = form["name"][:128]
            mark = request.cookies.get(DEVICE_COOKIE, "")[:200]
            session, _ = await logins.log_in_user(form["name"][:128], form.get("password", "")[:1024], source, mark)
            return session.digest
        digest = digest_of(form.get("token", "").strip())
        try:
            self._service.access.holder(digest)
        except Unknown:
            logins.note_failure(source)
            raise
        return digest

    # -- single sign-on --------------------------------------------------------------------------

    async def _begin(self, request: Request) -> Response:
        browser = secrets.token_urlsafe(32)
        try:
            url = await self._service.logins.begin_browser(browser, own_page(request.query_params.get("next")))
        except (RotaError, Unavailable) as error:
            return self._page(str(error), 503)
        leaving = RedirectResponse(url, status_code=303)
        # Lax: the browser comes back from the provider's site and must bring the cookie along.
        leaving.set_cookie(
            LOGIN_COOKIE,
            browser,
            max_age=PENDING_S,
            path="/login",
            httponly=True,
            samesite="lax",
            secure=self.is_secure(request),
        )
        return leaving

    async def _finish(self, request: Request) -> Response:
        answer = {name: value[:4096] for name, value in request.query_params.items()}
        browser = request.cookies.get(LOGIN_COOKIE, "")
        try:
            session, target = await self._service.logins.finish_browser(answer, browser, source_of(request))
        except (Unknown, LoginRefused) as error:
            refused = self._page(str(error), 401 if isinstance(error, Unknown) else 403)
            refused.delete_cookie(LOGIN_COOKIE, path="/login")
            return refused
        except (RotaError, Unavailable) as error:
            return self._page(str(error), 503)
        arrived = self._logged_in(request, session.digest, HTMLResponse(forward_page(own_page(target))))
        arrived.delete_cookie(LOGIN_COOKIE, path="/login")
        return arrived

    # -- sessions --------------------------------------------------------------------------------

    def _logged_in(self, request: Request, digest: str, answer: Response) -> Response:
        """Open a session under a new name; one that the browser brought along is closed."""
        visitor: Visitor = request.scope["rota.visitor"]
        self._sessions.close(visitor.session)
        answer.set_cookie(
            self.cookie(request),
            self._sessions.open(digest),
            max_age=int(LIFETIME_S),
            httponly=True,
            samesite="strict",
            secure=self.is_secure(request),
        )
        return answer

    async def _log_out(self, request: Request) -> Response:
        visitor: Visitor = request.scope["rota.visitor"]
        digest = self._sessions.close(visitor.session)
        told = "You are logged out."
        if digest is not None:
            stored = self._service.access.stored(digest)
            if stored is not None and stored.is_session:
                await self._service.logins.log_out(digest, stored.name)
                told = logged_out_words(await self._service.logins.logout_url())
        answer = self._page("", 200, told=told)
        name = self.cookie(request)
        answer.delete_cookie(name, secure=self.is_secure(request), httponly=True, samesite="strict")
        return answer

    def is_secure(self, request: HTTPConnection) -> bool:
        """Whether the browser reaches the manager over TLS."""
        return request.url.scheme in ("https", "wss") or self._service.logins.public_url.startswith("https://")

    def cookie(self, request: HTTPConnection) -> str:
        """Return the name of the session's cookie."""
        return SECURE_COOKIE if self.is_secure(request) else COOKIE


def own_page(asked: str | None) -> str:
    """Return the page that was asked for before the login, if it is one of this site; else the first page."""
    if asked is None or not asked.startswith("/") or asked.startswith(("//", "/\\", "/login", "/logout", "/api")):
        return "/"
    if not asked.isascii() or not asked.isprintable() or "\\" in asked or len(asked) > 500:
        return "/"
    return "/" if urlsplit(asked).netloc else asked
