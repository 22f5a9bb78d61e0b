#!/bin/sh
# Runs the Python tests against a built wheel, without src/, on every CPython >= 3.11 found:
#
#   scripts/wheels/test.sh target/wheels/interlock-*.whl [what to pass to pytest]
set -eu
cd "$(dirname "$0")/../.."

wheel=$1
shift
failed=
.venv/bin/python scripts/dependency_group.py test >target/test-wheel.txt
for python in $(scripts/prepare.sh pythons); do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    printf '\n== pytest of the wheel on %s (%s)\n' "$version" "$python"
    env=target/test-wheel/$version
    "$python" -m venv --clear "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check -r target/test-wheel.txt "$wheel"
    # VIRTUAL_ENV would send maturin and pip to .venv, where the package is the one in src/.
    env -u VIRTUAL_ENV -u PYO3_PYTHON INTERLOCK_WHEEL="$wheel" "$env/bin/python" -m pytest "$@" ||
        failed="$failed $version"
done
if [ -n "$failed" ]; then
    echo "interlock: the tests of the wheel failed on$failed" >&2
    exit 1
fi
