#!/bin/sh
# build_core.sh KIND: compiles the core and puts it and the package in .venv. The Makefile says what shipped,
# tested and dev mean.
set -eu
cd "$(dirname "$0")/.."
# Otherwise pip lists every optional dependency.
export PIP_QUIET=1

case $1 in
    shipped | tested) exec .venv/bin/python -m maturin develop --release --locked --quiet ;;
    dev) exec .venv/bin/python -m maturin develop --profile quick --locked --quiet ;;
    *) sed -n '2,3s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
