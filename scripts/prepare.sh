#!/bin/sh
# Creates .venv, or prints in one line what the machine lacks. Called by the Makefile:
#
#   scripts/prepare.sh rust          check that Rust and a linker are installed and new enough
#   scripts/prepare.sh tools GROUP   check that .venv works and has a group of pyproject.toml
#   scripts/prepare.sh pythons       print every CPython >= 3.11 of this machine, one path per line
#
# `tools` stores the group's list as .venv/tools-GROUP.txt and writes that file only if it installed
# something, so make can use it as a stamp.
# PYTHON names the interpreter; the default is the first of $candidates that is new enough.
# POSIX sh, because a fresh machine may have nothing else.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
candidates="python3 python3.13 python3.12 python3.11 python3.14"

fail() {
    echo "interlock: $*" >&2
    exit 1
}

# Prints why "$1" cannot run Interlock; nothing if it can.
objection() {
    "$1" -c '
import sys, sysconfig
version = "%d.%d.%d" % sys.version_info[:3]
if sys.version_info < (3, 11):
    print(version + " is too old")
elif sys.implementation.name != "cpython":
    print(sys.implementation.name + " has no stable ABI")
elif sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(version + " is the free-threaded build")
' 2>/dev/null || echo "it does not start"
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON=$PYTHON is not a program; name a Python 3.11 or later"
        why=$(objection "$PYTHON")
        [ -z "$why" ] || fail "PYTHON=$PYTHON cannot be used: $why; name a CPython 3.11 or later"
        echo "$PYTHON"
        return
    fi
    seen=
    for name in $candidates; do
        command -v "$name" >/dev/null 2>&1 || continue
        why=$(objection "$name")
        if [ -z "$why" ]; then
            echo "$name"
            return
        fi
        # A version manager's shim does not start if its version is not selected; this is not
        # reported.
        [ "$why" = "it does not start" ] || seen="$seen${seen:+, }$name: $why"
    done
    fail "Python 3.11 or later is needed${seen:+ ($seen)}; install one, or name it: make PYTHON=/path/to/python3.12"
}

check_rust() {
    command -v cargo >/dev/null 2>&1 ||
        fail "no cargo found; install Rust from https://rustup.rs (no root needed), then run make again"
    wanted=$(sed -n 's/^rust-version = "\([0-9]*\)\.\([0-9]*\).*/\2/p' Cargo.toml)
    found=$(cargo --version 2>/dev/null | sed -n 's/^cargo [0-9]*\.\([0-9]*\).*/\1/p')
    [ -n "$found" ] || fail "cargo does not start; 'cargo --version' says why"
    [ "$found" -ge "$wanted" ] ||
        fail "Rust 1.$wanted or later is needed, this is 1.$found; run: rustup update (or install it from https://rustup.rs)"
    # Link a program instead of searching for cc: cc without the files of the C library fails too.
    trial=$(mktemp -d)
    if ! (cd "$trial" && echo 'fn main() {}' | "${RUSTC:-rustc}" -o trial - 2>message); then
        cause=$(sed -n '1s/^error: //p' "$trial/message")
        rm -rf "$trial"
        fail "Rust cannot link a program ($cause); install a C compiler: apt install gcc libc6-dev, or on macOS xcode-select --install"
    fi
    rm -rf "$trial"
}

check_venv_module() {
    "$1" -c 'import venv, ensurepip' 2>/dev/null && return
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    fail "$1 ($version) has no venv module or no ensurepip; on Debian or Ubuntu: apt install python$version-venv"
}

# Prints nothing if .venv works and was created with PYTHON, if that is given.
stale() {
    [ -e "$venv/bin/python" ] || { echo "missing"; return; }
    "$venv/bin/python" -c 'import pip' 2>/dev/null || { echo "broken"; return; }
    # The scripts in bin and the path to src are absolute.
    sed 2q "$venv/bin/pip" | grep -qF "$(pwd -P)/$venv" || { echo "that of another folder"; return; }
    [ -z "$(objection "$venv/bin/python")" ] || { echo "of a Python that is too old"; return; }
    [ -n "${PYTHON:-}" ] || return 0
    identity='import sys; print(sys.base_prefix, sys.version)'
    [ "$("$PYTHON" -c "$identity")" = "$("$venv/bin/python" -c "$identity")" ] ||
        echo "another interpreter's"
}

make_venv() {
    [ -z "${PYTHON:-}" ] || find_python >/dev/null
    reason=$(stale)
    [ -n "$reason" ] || return 0
    python=$(find_python)
    check_rust
    check_venv_module "$python"
    [ "$reason" = missing ] || echo "interlock: $venv is $reason; making it anew"
    echo "interlock: making $venv with $("$python" -c 'import sys; print(sys.executable, sys.version.split()[0])')"
    "$python" -m venv --clear "$venv" || fail "$python could not make $venv; the lines above say why"
}

tools() {
    make_venv
    stamp=$venv/tools-$1.txt
    "$venv/bin/python" scripts/dependency_group.py "$1" >"$stamp.new"
    if cmp -s "$stamp" "$stamp.new"; then
        rm "$stamp.new"
        return
    fi
    echo "interlock: installing the $1 tools into $venv"
    # Python compiles a module when it is first imported; most of these never are.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -r "$stamp.new" ||
        fail "pip could not install the $1 tools (named in pyproject.toml); is PyPI, or your mirror of it, reachable?"
    mv "$stamp.new" "$stamp"
}

pythons() {
    {
        for minor in 11 12 13 14; do
            command -v "python3.$minor" || true
            ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3 2>/dev/null || true
        done
        [ -z "${PYTHON:-}" ] || command -v "$PYTHON" || true
        command -v python3 || true
    } | while read -r path; do
        [ -n "$(objection "$path")" ] && continue
        "$path" -c 'import sys; print("3.%02d" % sys.version_info[1], sys.executable)'
    done | sort -u -k1,1 | cut -d' ' -f2-
}

case "${1:-}" in
    rust) check_rust ;;
    tools) tools "$2" ;;
    pythons) pythons ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
