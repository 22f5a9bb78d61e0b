"""The `interlock` command, and `python -m interlock`."""

import sys


def main() -> int:
    """Run the command and return its exit code; see `interlock.cli.main`."""
    if sys.argv[1:] == ["--version"]:
        # Without argparse, whose import takes longer than the rest.
        from interlock import __version__

        print(f"interlock {__version__}")
        return 0
    from interlock.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
