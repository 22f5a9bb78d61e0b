#!/bin/sh
# Installs and uses the files of a release, without src/:
#
#   scripts/wheels/try.sh target/wheels target/sdist
#
# The wheel in a new environment of every CPython >= 3.11 found: first alone, without dependencies;
# then with them, also from a folder. The sdist is built and used on one of them.
set -eu
cd "$(dirname "$0")/../.."

wheels=$1
sdists=$2
pip() {
    # VIRTUAL_ENV would send maturin to .venv.
    env -u VIRTUAL_ENV -u PYO3_PYTHON "$env/bin/python" -I -m pip --quiet --disable-pip-version-check "$@"
}
use() {
    # -I: neither the folder nor the environment adds a path.
    PATH="$PWD/$env/bin:$PATH" "$env/bin/python" -I scripts/wheels/try_install.py "$@"
}
for python in $(scripts/prepare.sh pythons); do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    env=target/try-wheel/$version
    needed=target/try-wheel/needed-$version
    "$python" -m venv --clear "$env"
    printf '\n== the wheel on %s, alone\n' "$version"
    pip install --no-index --no-deps --find-links "$wheels" interlock
    use core
    printf '== and with what it depends on\n'
    "$env/bin/python" -I -c '
from importlib.metadata import requires
print(*(line for line in requires("interlock") if "extra ==" not in line), sep="\n")
' >"$env/needed.txt"
    pip download --only-binary :all: --dest "$needed" -r "$env/needed.txt"
    pip install --no-index --find-links "$wheels" --find-links "$needed" interlock
    use core tasks
done
printf '\n== the sdist on %s\n' "$version"
"$python" -m venv --clear "$env"
pip install --no-binary interlock "$sdists"/interlock-*.tar.gz
use core tasks
