"""`interlock dashboard`: serve a web page with the queues of an engine."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.cli.flags import Flag
from interlock.runtime.installation import needs

if TYPE_CHECKING:
    from interlock.dashboard.settings import Settings

FLAGS = (
    Flag("--url", "the engine: interlock://HOST:PORT of a hub, redis://USER:PASSWORD@HOST:PORT, "
         "rediss://, redis+cluster://, unix:PATH (the variable INTERLOCK_URL)", "URL"),
    Flag("--host", "address to serve on; one other than loopback needs a login (127.0.0.1)",
         "HOST", default="127.0.0.1"),
    Flag("--port", "port to serve on; 0 for a free one (8787)", "PORT", int, 8787),
    Flag("--write", "allow changes too: retry, skip, bury, cancel, pause, requeue"),
    Flag("--login", "who may log in: everyone without a login (none, loopback only), everyone with "
         "the token, or users of the engine with their own rights (none; token on other hosts)",
         choices=("none", "token", "engine")),
    Flag("--token-file", "file with the token; without it a token is generated and printed",
         "FILE"),
    Flag("--allow-host", "additional host name that requests may use, such as that "
         "of a proxy; repeatable", "NAME", many=True),
    Flag("--base-path", "path under which a proxy serves it", "/PATH", default=""),
    Flag("--log-format", "format of the audit log on standard error, one line per change (text)",
         choices=("text", "json")),
    Flag("--json", "print the address as JSON once it is serving"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "dashboard",
        description="Serve a page that shows the queues of a hub or a Redis, live: their messages "
        "and keys, what waits for what, dead letters, workers. It only reads, unless --write is "
        f"given. Needs: {needs('dashboard')}.",
        epilog="TERM and INT stop it. Exit codes: 0 stopped; 1 the address is taken, or what it "
        "needs is not installed; 2 wrong usage.",
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until TERM or INT."""
    import logging

    from interlock import audit
    from interlock.dashboard import service

    try:
        settings, printed = settings_of(given)
        settings.check()
    except (ValueError, OSError) as error:
        return _failed(str(error), BAD_INPUT)

    def ready(url: str) -> None:
        if given.json:
            print(json.dumps({"url": url, "token": printed or None}), flush=True)
        else:
            print(f"interlock dashboard: {url}", flush=True)
            if printed:
                print(f"interlock dashboard: the token is {printed}", flush=True)

    shown = audit.to(logging.StreamHandler(), as_json=given.log_format == "json")
    try:
        with shown, audit.to_file():
            service.serve(settings, ready)
    except ImportError as error:
        return _failed(str(error), BROKEN)
    except ValueError as error:
        return _failed(str(error), BAD_INPUT)
    except OSError as error:
        return _failed(f"cannot serve on {settings.host}:{settings.port}: {error}", BROKEN)
    return 0


def settings_of(given: argparse.Namespace) -> tuple[Settings, str]:
    """Return the settings, and the token to print if one was made.

    Raises ValueError for invalid settings, OSError if the token cannot be read.
    """
    from interlock.client import url as urls
    from interlock.dashboard.settings import Settings, is_loopback

    url: str = given.url or os.environ.get("INTERLOCK_URL") or ""
    if not url:
        raise ValueError(
            "no engine is named; set --url or INTERLOCK_URL: interlock://127.0.0.1:6399 for a "
            "hub, redis://127.0.0.1:6379 for Redis"
        )
    if "://" not in url and not url.startswith("unix:"):
        url = f"interlock://{url}"
    if urls.parse(url).kind == "memory":
        raise ValueError(
            "memory:// has only the queues of its own process; give --url a hub or a Redis"
        )
    if not 0 <= given.port < 65536:
        raise ValueError(f"--port is {given.port}; allowed: 0 to 65535")
    login, token, printed = given.login, "", ""
    if given.token_file:
        if login not in (None, "token"):
            raise ValueError(f"--token-file is for --login token, not for --login {login}")
        login = "token"
        token = Path(given.token_file).read_text().strip()
    elif login is None:
        login = "none" if is_loopback(given.host) else "token"
    if login == "token" and not token:
        if given.token_file:
            raise ValueError(f"{given.token_file} holds no token")
        token = printed = secrets.token_urlsafe(24)
    settings = Settings(
        url=url,
        host=given.host,
        port=given.port,
        write=given.write,
        login="user" if login == "engine" else login,
        token=token,
        allowed_hosts=tuple(given.allow_host or ()),
        base_path=given.base_path.rstrip("/"),
    )
    return settings, printed


def _failed(message: str, code: int) -> int:
    """Print the error, and return the exit code."""
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return code


BROKEN = 1
BAD_INPUT = 2
