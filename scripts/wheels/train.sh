#!/bin/sh
# Records where the core's time goes, for a build that is optimised for it:
#
#   scripts/wheels/train.sh target/profile/core.profdata
#   INTERLOCK_PROFILE=target/profile/core.profdata scripts/wheels/build.sh target/wheels
#
# Builds a core that counts its branches, beside the one in src/, and uses it as users do: the replay of
# the main job, queues in one process, topics and queues of a hub under load, and the state table. Takes
# about ten minutes on two cores.
set -eu
cd "$(dirname "$0")/../.."

profile=$(realpath -m "$1")
folder=$(dirname "$profile")
host=$(rustc -vV | sed -n 's/^host: //p')
tools=$(rustc --print sysroot)/lib/rustlib/$host/bin
if [ ! -x "$tools/llvm-profdata" ] && ! rustup component add llvm-tools; then
    echo "interlock: no llvm-profdata for this Rust; install it with: rustup component add llvm-tools" >&2
    exit 1
fi
rm -rf "$folder/raw" "$folder/wheel" "$folder/site"

# With --target, the programs that run during the build are not counted.
CARGO_TARGET_DIR=$folder/target RUSTFLAGS="-Cprofile-generate=$folder/raw ${RUSTFLAGS:-}" \
    .venv/bin/python -m maturin build --release --locked --quiet --target "$host" --out "$folder/wheel"
.venv/bin/python -m pip --quiet --disable-pip-version-check install \
    --no-index --no-deps --target "$folder/site" "$folder"/wheel/*.whl

# The package with the counting core is found first, by children too.
export PYTHONPATH="$folder/site"
# One file for all processes of the core, which are added up.
export LLVM_PROFILE_FILE="$folder/raw/%m.profraw"
trace=examples/data/redis-commits.jsonl.gz
.venv/bin/python -m interlock replay $trace --workers 8 --work hash --compare
.venv/bin/python scripts/run_engines.py $trace --workers 8 --work hash
.venv/bin/python -m benchmarks --repeat 1 --rows 'single/*' 'threads/*' 'executor/*' 'asyncio/one-loop' \
    'hub/publish*' 'hub/fan-out-*' 'hub/single-*' 'queue/*'
.venv/bin/python -m benchmarks --repeat 1 --rows table/get table/set-column table/incr \
    table/row table/set-row table/miss table/batch

"$tools/llvm-profdata" merge --output="$profile" "$folder"/raw/*.profraw
ls -l "$profile"
