#!/usr/bin/env bash
# tests.sh PYTEST-ARGUMENT...: runs pytest; failed tests are run once more, alone.
#
# Thousands of tests with processes, signals and servers share two cores, and now and then one fails
# because of its neighbours. It is named at the end. Tests with a random seed and tests of the
# contract get no second run.
set -uo pipefail
cd "$(dirname "$0")/.."
py=.venv/bin/python
most=5
# Neither cargo nor make in a test is one of make's jobs.
unset MAKEFLAGS MFLAGS
strict='^(tests/contract|tests/property|tests/stress|tests/engine/schedules|tests/engine/test_random)'

rm -f .pytest_cache/v/cache/lastfailed
$py -m pytest "$@"
code=$?
# 1: some tests failed. Other codes (usage, no tests, interrupted) are not retried.
((code == 1)) || exit $code

mapfile -t failed < <($py -c '
import json
print(*json.load(open(".pytest_cache/v/cache/lastfailed")), sep="\n")')
((${#failed[@]} > 0 && ${#failed[@]} <= most)) || exit $code
printf '%s\n' "${failed[@]}" | grep -qE "$strict" && exit $code

printf '\n== once more, alone: %d that failed\n' "${#failed[@]}"
# By their names, so that nothing else is collected.
env -u INTERLOCK_SHARES $py -m pytest "${failed[@]}" || exit $?
printf 'interlock: UNSTEADY, failed beside others and passed alone: %s\n' "${failed[@]}" >&2
