#!/bin/sh
# Runs `cargo COMMAND ARGS...` where COMMAND is an optional component of Rust (fmt, clippy).
# A minimal Rust lacks them: a newcomer's `make test` reports it and continues, the CI (CI=1) fails.
set -eu

command=$1
shift
case $command in
    fmt) component=rustfmt ;;
    *) component=$command ;;
esac
if cargo "$command" --version >/dev/null 2>&1; then
    exec cargo "$command" "$@"
elif [ -n "${CI:-}" ]; then
    echo "interlock: cargo $command is missing; run: rustup component add $component" >&2
    exit 1
fi
echo "interlock: SKIPPED cargo $command, which this Rust lacks; to have it: rustup component add $component" >&2
