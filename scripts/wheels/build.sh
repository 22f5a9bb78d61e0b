#!/bin/sh
# Builds the wheels of this machine's processor, into a folder that is emptied first:
#
#   scripts/wheels/build.sh FOLDER [gnu] [musl]
#
# On Linux, one for glibc from 2.17 on (manylinux2014) and one for musl from 1.2 on, both linked by zig,
# whose libc files make the result the same on every machine. Elsewhere one, linked by the system's
# own linker. INTERLOCK_PROFILE names a file by scripts/wheels/train.sh, for which the core is optimised.
set -eu
cd "$(dirname "$0")/../.."

folder=$1
shift
if [ -n "${INTERLOCK_PROFILE:-}" ]; then
    export RUSTFLAGS="-Cprofile-use=$(realpath "$INTERLOCK_PROFILE") ${RUSTFLAGS:-}"
fi
rm -rf "$folder"
build() {
    .venv/bin/python -m maturin build --release --locked --quiet --out "$folder" "$@"
}
if [ "$(uname -s)" != Linux ]; then
    build
    ls "$folder"
    exit
fi
# maturin looks for the package of zig in this one.
export CARGO_ZIGBUILD_PYTHON_PATH="$PWD/.venv/bin/python"
for libc in "${@:-gnu musl}"; do
    for one in $libc; do
        case $one in
            gnu) policy=manylinux_2_17 ;;
            musl) policy=musllinux_1_2 ;;
            *) echo "interlock: $one is not a libc; allowed: gnu, musl" >&2 && exit 2 ;;
        esac
        target=$(uname -m)-unknown-linux-$one
        if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ] && ! rustup target add "$target"; then
            echo "interlock: Rust has no files for $target here; rustup target add $target, or name the other libc" >&2
            exit 1
        fi
        build --zig --target "$target" --compatibility "$policy"
    done
done
ls "$folder"
