"""Logins: local users by password and users of a provider by browser or device, each of which opens a session.

A session is a token that lives in memory. It ends when the user logs out, when an admin revokes it, when the user is
removed or gets another password, when the provider no longer refreshes it, and with the manager.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from dataclasses import dataclass, replace
from typing import Any

from rota.api.access import Access, AccessRole, Unknown, digest_of
from rota.api.identity.attempts import DeviceMarks, LoginLimiter, TooManyLogins
from rota.api.identity.pending import DeviceLogin, PendingBrowser, PendingLogins
from rota.api.identity.provider_protocol import LoginProvider, ProviderRefused, ProviderTokens
from rota.api.identity.rights import LoginRefused, UserRights, rights_of
from rota.core.errors import RotaError, Unavailable
from rota.store import clock
from rota.store.tokens import Identities, StoredToken
from rota.store.user_file import BLOCK, COST, PARALLEL, LocalUser, UserFile, is_password

log = logging.getLogger("rota.api")
LOCAL = "local users"
"""The issuer of local users, in the table of identities."""
SESSION_S = 12 * 3600.0
CHECK_S = 0.5
HASHES_AT_ONCE = 2
MAX_WAITING = 32
"""Logins that wait for their passwords to be compared, in each lane."""
GRACE_S = 60.0
"""How long a session outlives the provider's token, so that a refresh can be repeated."""
UNKNOWN_USER = f"scrypt:{COST}:{BLOCK}:{PARALLEL}:{'A' * 22}==:{'A' * 43}="
"""Compared with the password of users that do not exist: takes as long as a user's own, and never matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSession:
    """A session of a user of the provider."""

    name: str
    subject: str
    refresh_token: str | None
    refresh_at_s: float
    until_s: float


class HashLane:
    """A queue of logins whose passwords are compared, a few at once. Known devices have a lane of their own."""

    def __init__(self, at_once: int) -> None:
        self._hashing = asyncio.Semaphore(at_once)
        self._waiting = 0

    async def enter(self, pause_s: float) -> None:
        """Wait for a turn, after a pause; raises `TooManyLogins` if too many wait."""
        if self._waiting >= MAX_WAITING:
            raise TooManyLogins(1.0)
        self._waiting += 1
        try:
            await asyncio.sleep(pause_s)
            await self._hashing.acquire()
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        """Let the next one have its turn."""
        self._hashing.release()


class Logins:
    """Opens sessions, keeps them in step with the file of users and the provider, and ends them."""

    def __init__(
        self,
        access: Access,
        identities: Identities,
        users: UserFile,
        provider: LoginProvider | None = None,
        public_url: str = "",
    ) -> None:
        self._access = access
        self._identities = identities
        self._users = users
        self._provider = provider
        self.public_url = public_url.rstrip("/")
        self.pending = PendingLogins()
        self._limiter = LoginLimiter()
        self._marks = DeviceMarks()
        self._lanes = {"known": HashLane(1), "usual": HashLane(HASHES_AT_ONCE), "slow": HashLane(1)}
        self._local: dict[str, LocalUser] = {}
        self._of_provider: dict[str, ProviderSession] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # -- what is offered -------------------------------------------------------------------------

    @property
    def has_users(self) -> bool:
        """Whether there are local users."""
        try:
            return bool(self._users.users())
        except RotaError:
            return True

    @property
    def issuer(self) -> str | None:
        """The provider of single sign-on, or None."""
        return None if self._provider is None else self._provider.settings.issuer

    def _need_provider(self) -> LoginProvider:
        if self._provider is None:
            raise RotaError("this manager has no single sign-on; log in with a user name and password, or a token")
        return self._provider

    # -- local users -----------------------------------------------------------------------------

    async def log_in_user(self, name: str, password: str, source: str, mark: str = "") -> tuple[StoredToken, str]:
        """Open a session for a local user; a wrong name and a wrong password can't be told apart.

        `mark` is what `new_mark` returned when the user last logged in with this device, if it did.
        """
        user = self._known_user(name)
        hashed = UNKNOWN_USER if user is None else user.password
        device = self._marks.device(mark, name, hashed)
        self._limiter.refuse_if_many(source, name, device)
        pause_s = 0.0 if device else self._limiter.pause_s(source)
        lane = self._lanes["known" if device else "slow" if pause_s else "usual"]
        await lane.enter(pause_s)
        try:
            self._limiter.refuse_if_many(source, name, device)  # others may have failed while it waited
            is_right = await asyncio.to_thread(is_password, password, hashed)
        finally:
            lane.leave()
        if not is_right or user is None:
            self._limiter.failed(source, name, device)
            raise Unknown("the user name or the password is wrong")
        self._limiter.succeeded(source, name, device)
        await self._claim(name, LOCAL, name)
        opened = await asyncio.to_thread(
            self._access.open_session,
            name,
            AccessRole(user.role),
            user.tenants,
            clock.now_s() + SESSION_S,
            f"password, from {source}",
        )
        self._local[opened[0].digest] = user
        return opened

    def _known_user(self, name: str) -> LocalUser | None:
        try:
            return self._users.users().get(name)
        except RotaError as error:  # where the file lies and what is in it is not for callers without a session
            log.error("the file of users can't be read", extra={"error": str(error)})
            raise Unavailable("local users can't log in now; the manager's log says why") from error

    def new_mark(self, name: str) -> str:
        """Return the mark of a device with which a local user has just logged in."""
        user = self._known_user(name)
        return "" if user is None else self._marks.make(name, user.password)

    def note_failure(self, source: str) -> None:
        """Count a failed login with a token; raises `TooManyLogins` after many of them."""
        self._limiter.refuse_failed(source)
        self._limiter.failed(source)

    async def pause(self, source: str) -> None:
        """Let a login from an address wait from which many have failed."""
        await asyncio.sleep(self._limiter.pause_s(source))

    async def _claim(self, name: str, issuer: str, subject: str) -> None:
        """Let a name belong to an account; refuse one that belongs to another, also to a token or a local user."""
        is_free = issuer == LOCAL or not (self._access.has_token(name) or self._known_user(name))
        if not await asyncio.to_thread(self._identities.claim, name, issuer, subject, is_free=is_free):
            raise LoginRefused(f"the name {name!r} belongs to another account on this manager; ask an admin")

    async def release(self, name: str, actor: str) -> bool:
        """Let another account use a name; return whether it belonged to one."""
        return await asyncio.to_thread(self._identities.release, name, clock.now_s(), actor)

    # -- the provider, in a browser --------------------------------------------------------------

    @property
    def _redirect_uri(self) -> str:
        return f"{self.public_url}/login/callback"

    async def begin_browser(self, browser: str, target: str) -> str:
        """Return the provider's page for a login; `browser` is a secret in a cookie of this browser."""
        state, nonce, verifier = (secrets.token_urlsafe(size) for size in (32, 32, 48))
        url = await self._need_provider().authorization_url(
            redirect_uri=self._redirect_uri, state=state, nonce=nonce, verifier=verifier
        )
        self.pending.add_browser(state, PendingBrowser(digest_of(browser), nonce, verifier, target))
        return url

    async def finish_browser(self, answer: dict[str, str], browser: str, source: str) -> tuple[StoredToken, str]:
        """Open a session from the provider's answer; return it with the page that was asked for."""
        provider = self._need_provider()
        begun = self.pending.take_browser(answer.get("state", ""))
        if begun is None or not hmac.compare_digest(begun.browser, digest_of(browser)):
            raise Unknown("this login was not begun in this browser, or it took too long; log in again")
        if answer.get("error"):
            raise Unknown(f"the provider refused the login: {answer.get('error_description') or answer['error']}"[:300])
        stated = answer.get("iss")
        if stated is not None and stated.rstrip("/") != provider.settings.issuer.rstrip("/"):
            raise Unknown("the answer is of another provider; log in again")
        tokens = await provider.exchange(
            answer.get("code", ""), redirect_uri=self._redirect_uri, nonce=begun.nonce, verifier=begun.verifier
        )
        session, _ = await self._open(tokens, f"single sign-on, from {source}")
        return session, begun.target

    async def logout_url(self) -> str | None:
        """Return where a browser ends its session with the provider, or None."""
        try:
            return None if self._provider is None else await self._provider.logout_url()
        except (RotaError, Unavailable):
            return None

    # -- the provider, on another device ---------------------------------------------------------

    async def begin_device(self) -> dict[str, Any]:
        """Begin a login on another device; the answer has the code for the user and a handle to poll with."""
        answer = await self._need_provider().begin_device()
        login = DeviceLogin.from_answer(answer)
        handle = self.pending.add_device(login)
        complete = answer.get("verification_uri_complete")
        return {
            "handle": handle,
            "user_code": answer["user_code"],
            "verification_uri": answer["verification_uri"],
            "verification_uri_complete": complete if isinstance(complete, str) else None,
            "interval_s": login.interval_s,
            "expires_in_s": login.expires_in_s,
        }

    async def poll_device(self, handle: str, source: str) -> tuple[StoredToken, str] | None:
        """Return the session once the user has confirmed; None until then."""
        provider = self._need_provider()
        login = self.pending.device(handle)
        if login is None:
            raise Unknown("this login is unknown or took too long; begin again with `rota login`")
        if not login.may_poll():
            return None
        try:
            tokens = await provider.poll_device(login.device_code)
        except ProviderRefused as refused:
            if login.goes_on(refused.code):
                return None
            self.pending.drop_device(handle)
            raise
        self.pending.drop_device(handle)
        return await self._open(tokens, f"single sign-on by device, from {source}")

    # -- sessions of the provider's users --------------------------------------------------------

    async def _open(self, tokens: ProviderTokens, how: str) -> tuple[StoredToken, str]:
        provider = self._need_provider()
        assert tokens.claims is not None, "a login has claims"
        user = rights_of(tokens.claims, provider.settings)
        await self._claim(user.name, provider.settings.issuer, user.subject)
        now_s = clock.now_s()
        made = ProviderSession(
            name=user.name,
            subject=user.subject,
            refresh_token=tokens.refresh_token,
            refresh_at_s=now_s + tokens.expires_in_s,
            until_s=now_s + provider.settings.session,
        )
        opened = await asyncio.to_thread(
            self._access.open_session, user.name, user.role, user.tenants, _expiry(made), how
        )
        self._of_provider[opened[0].digest] = made
        return opened

    async def log_out(self, digest: str, actor: str) -> None:
        """End a session, here and with the provider."""
        await asyncio.to_thread(self._access.end_session, digest, actor)
        await self._forget(digest)

    async def _forget(self, digest: str) -> None:
        self._local.pop(digest, None)
        session = self._of_provider.pop(digest, None)
        if session is not None and session.refresh_token is not None and self._provider is not None:
            try:
                await self._provider.revoke(session.refresh_token)
            except (RotaError, Unavailable) as error:
                log.info("a refresh token could not be revoked", extra={"error": str(error)})

    # -- in step with the file and the provider --------------------------------------------------

    async def run(self) -> None:
        """Check sessions until cancelled."""
        try:
            while True:
                await asyncio.sleep(CHECK_S)
                await self.check()
        finally:
            for task in self._tasks.values():
                task.cancel()
            if self._provider is not None:
                await self._provider.close()

    async def check(self) -> None:
        """End sessions whose user has changed, and refresh those of the provider that are due."""
        self._tasks = {digest: task for digest, task in self._tasks.items() if not task.done()}
        for digest in [*self._local, *self._of_provider]:
            if not self._access.is_valid(digest):
                await self._forget(digest)
        if self._local:
            await self._check_local()
        now_s = clock.now_s()
        for digest, session in self._of_provider.items():
            is_due = session.refresh_token is not None and session.refresh_at_s - GRACE_S / 2 <= now_s
            if is_due and digest not in self._tasks:
                self._tasks[digest] = asyncio.create_task(self._refresh(digest, session))

    async def _check_local(self) -> None:
        try:
            users = self._users.users()
        except RotaError as error:
            log.warning("the file of users can't be read; nothing changes", extra={"error": str(error)})
            return
        for digest, user in list(self._local.items()):
            current = users.get(user.name)
            if current == user:
                continue
            del self._local[digest]
            why = "the user was removed" if current is None else "the user was changed"
            await asyncio.to_thread(self._access.end_session, digest, "manager", why)

    async def _refresh(self, digest: str, session: ProviderSession) -> None:
        """Refresh a session. If the provider refuses, it ends; if the provider is away, it ends when it expires."""
        provider = self._need_provider()
        assert session.refresh_token is not None, "only sessions with a refresh token are due"
        try:
            tokens = await provider.refresh(session.refresh_token)
            user = None if tokens.claims is None else rights_of(tokens.claims, provider.settings)
            if user is not None and (user.subject, user.name) != (session.subject, session.name):
                raise LoginRefused("the provider answered with another user")
        except Unavailable as error:
            log.warning("a session can't be refreshed", extra={"user": session.name, "error": str(error)})
            await asyncio.sleep(GRACE_S / 10)
            return
        except RotaError as error:
            self._of_provider.pop(digest, None)
            await asyncio.to_thread(self._access.end_session, digest, "manager", str(error))
            return
        renewed = replace(
            session,
            refresh_token=tokens.refresh_token or session.refresh_token,
            refresh_at_s=clock.now_s() + tokens.expires_in_s,
        )
        if digest in self._of_provider and self._access.is_valid(digest):
            self._of_provider[digest] = renewed
            self._access.extend_session(digest, _expiry(renewed))
            if user is not None:
                await self._apply(digest, user)

    async def _apply(self, digest: str, user: UserRights) -> None:
        stored = self._access.stored(digest)
        if stored is not None and (stored.role, stored.tenants) != (user.role.value, user.tenants):
            await asyncio.to_thread(self._access.change_session, digest, user.role, user.tenants, "manager")


def _expiry(session: ProviderSession) -> float:
    if session.refresh_token is None:
        return session.until_s
    return min(session.until_s, session.refresh_at_s + GRACE_S)
