"""`interlock completion SHELL`: print the completion of this command for a shell."""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from pathlib import Path

FILES = {
    "bash": "bash-completion/completions/interlock",
    "zsh": "zsh/site-functions/_interlock",
    "fish": "fish/vendor_completions.d/interlock.fish",
}
"""Path in the package, under ``share``."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "completion",
        description="Print the completion of this command for a shell, which reads it at its "
        "start: in ~/.bashrc, source <(interlock completion bash); in ~/.zshrc, after compinit, "
        'eval "$(interlock completion zsh)"; for fish, interlock completion fish > '
        "~/.config/fish/completions/interlock.fish.",
        epilog="If the package is installed under /usr or /usr/local, shells find it by "
        "themselves. Exit codes: 0 printed, 1 the package has no such file, 2 wrong usage.",
    )
    parser.add_argument("shell", choices=tuple(FILES), help="which shell")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print it."""
    path = found(FILES[given.shell])
    if path is None:
        print("interlock: this installation has no completion files", file=sys.stderr)
        return BROKEN
    sys.stdout.write(path.read_text(encoding="utf-8"))
    return 0


def found(name: str) -> Path | None:
    """Return the path of a package's file: in a checkout among the sources."""
    own = Path(__file__).resolve().parents[3] / "packaging" / "data" / "share" / name
    if own.is_file():
        return own
    try:
        files = metadata.files("interlock") or ()
    except metadata.PackageNotFoundError:
        return None
    places = (Path(str(each.locate())) for each in files if str(each).endswith(f"share/{name}"))
    return next((place for place in places if place.is_file()), None)


BROKEN = 1
