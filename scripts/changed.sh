#!/bin/sh
# changed.sh PATH...: whether a crate is to be tried with every schedule of its threads: exits with 1, and
# says so, if none of the paths changed since
#
#   INTERLOCK_BASE, a commit; else where this branch left origin/main; and on main itself, the last commit
#   that is a day older than this one: what is older was tried by the nightly run.
#
# Where that cannot be told, and in `make test-long`, all is tried.
set -eu
cd "$(dirname "$0")/.."

[ -n "${INTERLOCK_SHARES:-}" ] || exit 0
head=$(git rev-parse --verify --quiet HEAD 2>/dev/null) || exit 0
base=$(git rev-parse --verify --quiet "${INTERLOCK_BASE:-none}^{commit}" 2>/dev/null) ||
    base=$(git merge-base origin/main HEAD 2>/dev/null) || exit 0
if [ "$base" = "$head" ]; then
    day_before=$(($(git show --no-patch --format=%ct HEAD) - 86400))
    base=$(git rev-list --max-count=1 --before="$day_before" HEAD)
fi
[ -n "$base" ] || exit 0
if git diff --quiet "$base" -- "$@" Cargo.lock; then
    echo "interlock: left to make test-long, for nothing changed since $(git rev-parse --short "$base"): $*"
    exit 1
fi
