"""Checks of every request before it is answered, and the headers of every answer.

The requested host name is checked against DNS rebinding: a page of another site whose own name
resolves to this address sends that name. The origin is checked against pages that send requests of
their own, in addition to the cookie, which those do not get, and the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from interlock.dashboard.refusal import Refusal
from interlock.dashboard.settings import LOOPBACK, Settings, is_loopback

MARK = "x-interlock-csrf"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The hosts and origins that a dashboard accepts."""

    def __init__(self, settings: Settings) -> None:
        names = {*LOOPBACK} if is_loopback(settings.host) else set()
        if settings.host not in EVERYWHERE:
            names.add(settings.host.strip("[]").lower())
        self._names = names
        self._allowed = {name.lower() for name in settings.allowed_hosts}

    def check_host(self, host: str, own: str) -> None:
        """Refuse a request that names another host; `own` is the address it arrived at."""
        name = name_of(host)
        if host.lower() in self._allowed or name in self._allowed or name in self._names:
            return
        if name and (name == own or (name in LOOPBACK and is_loopback(own))):
            return
        raise Refusal(
            403,
            f"this dashboard does not answer for the host {host[:100]!r}; "
            f"start it with --allow-host NAME if that is its name",
        )

    def check_origin(self, headers: Mapping[str, str], changes: bool) -> None:
        """Refuse a request from a page of another site."""
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none"):
            raise Refusal(403, "the request comes from another site")
        origin = headers.get("origin")
        if origin is None or not changes:
            return
        place = urlsplit(origin).netloc.lower() if "://" in origin else ""
        if place and (place == headers.get("host", "").lower() or self._is_allowed(place)):
            return
        raise Refusal(403, f"the request comes from {origin[:100]!r}, which is another site")

    def _is_allowed(self, place: str) -> bool:
        return place in self._allowed or name_of(place) in self._allowed


def name_of(host: str) -> str:
    """Return the name in a Host header, without its port; empty if it is invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


EVERYWHERE = ("0.0.0.0", "::", "[::]")
