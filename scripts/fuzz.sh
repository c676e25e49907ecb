#!/usr/bin/env bash
# Fuzzes what reads our own formats from disk or network, each target for a while.
#
#   scripts/fuzz.sh [seconds per target, default 5] [target …, default all]
#
# Starts from recorded bytes (tests/vectors, fuzz/seeds). An input that fails is kept under target/fuzz/failures/TARGET, and
# `target/fuzz/…/release/TARGET FILE` runs it again. Needs a C++ compiler, for libFuzzer; without one it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RSS_MIB_MAX=512 RUN_SECONDS_MAX=20
readonly BUILD=target/fuzz
SECONDS_EACH="${1:-5}"
shift || true
TARGETS=("$@")
if ((${#TARGETS[@]} == 0)); then
    for file in fuzz/fuzz_targets/*.rs; do TARGETS+=("$(basename "$file" .rs)"); done
fi
HOST="$(rustc -vV | sed -n 's/^host: //p')"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

has_cxx() {
    echo 'int main() {}' | "${CXX:-c++}" -x c++ - -o "$work/cxx" > /dev/null 2>&1
}

# What `cargo fuzz` does, without a sanitizer, which needs nightly Rust. With --target, build scripts are spared.
build() {
    local flags="--cfg fuzzing -Cpasses=sancov-module"
    flags+=" -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
    flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
    RUSTFLAGS="$flags" cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml \
        --target-dir "$BUILD" --target "$HOST" --bins
}

unhex() {
    # shellcheck disable=SC2059  # it is made of \x escapes only
    printf "$(sed 's/../\\x&/g' <<< "$1")"
}

# A number as the hexadecimal digits of a little-endian u32.
u32() {
    printf '%02x%02x%02x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255))
}

# Entries (server/raft/src/entry.rs) of each recorded command, and of all of them, into $1.
entries() {
    local name hex one all="" time="00709d739b010000"
    while read -r name hex; do
        one="$(u32 $((${#hex} / 2)))$hex"
        unhex "01$time$one" > "$1/$name"
        all+="$one"
    done < <(cat tests/vectors/queue/commands-*.txt)
    unhex "01$time$all" > "$1/all"
}

# The recorded snapshot of the cache, and the recorded commands from nothing on, into $1.
caches() {
    local hex name commands=""
    hex="$(cat tests/vectors/kv/snapshot-v1.txt)"
    unhex "$(u32 $((${#hex} / 2)))$hex" > "$1/snapshot"
    while read -r name hex; do
        commands+="$(u32 $((${#hex} / 2)))$hex"
        unhex "$(u32 0)$(u32 $((${#hex} / 2)))$hex" > "$1/$name"
    done < tests/vectors/kv/commands-v1.txt
    unhex "$(u32 0)$commands" > "$1/all"
}

# The recorded commands of stream groups, one by one and from nothing on, into $1, with the bytes $2 before them.
streams() {
    local hex name one commands="" before="${2:-}"
    while read -r name hex; do
        one="$(u32 $((${#hex} / 2)))$hex"
        commands+="$one"
        unhex "$before$one" > "$1/$name"
    done < tests/vectors/stream/commands-v1.txt
    unhex "$before$commands" > "$1/all"
}

# Fills the first corpus of target $1.
seed() {
    local target="$1" corpus="$2" file
    if [[ -d "fuzz/seeds/$target" ]]; then cp "fuzz/seeds/$target"/* "$corpus"; fi
    case "$target" in
        entry | command) entries "$corpus" ;;
        queue_snapshot)
            for file in tests/vectors/queue/snapshot-*.txt; do
                unhex "$(cat "$file")" > "$corpus/$(basename "$file")"
            done
            ;;
        cache) caches "$corpus" ;;
        stream_command) streams "$corpus" ;;
        # Format 1, group 1000, commands that store something; and an answer with places of records.
        stream_call)
            streams "$corpus" 01e803000000
            unhex "010005$(u32 7)$(u32 0)$(u32 8)$(u32 0)$(u32 1)$(u32 10)$(u32 0)01" > "$corpus/answer"
            ;;
        stream_snapshot) unhex "$(cat tests/vectors/stream/snapshot-v1.txt)" > "$corpus/snapshot" ;;
        wal) cp --backup=numbered tests/vectors/log/*/wal-* "$corpus" ;;
        segment) cp --backup=numbered tests/vectors/log/*/seg-* "$corpus" ;;
        checkpoint) cp --backup=numbered tests/vectors/log/*/ckp-* "$corpus" ;;
    esac
}

# A number of the final statistics.
statistic() {
    sed -n "s/^stat::$1: *//p" "$2"
}

# Runs target $1; prints a line of what was done, or the report of a failure.
run() {
    local target="$1" corpus="$work/$1" log="$work/$1.log" failures="$BUILD/failures/$1/"
    mkdir -p "$corpus" "$failures"
    seed "$target" "$corpus"
    if ! RUST_BACKTRACE=1 "$BUILD/$HOST/release/$target" -max_total_time="$SECONDS_EACH" -rss_limit_mb="$RSS_MIB_MAX" \
        -timeout="$RUN_SECONDS_MAX" -print_final_stats=1 -artifact_prefix="$failures" "$corpus" > "$log" 2>&1; then
        echo "fuzz $target: FAILED" >&2
        grep -v -e '^#' -e '^INFO' -e '^WARNING' -e NEW_FUNC "$log" | tail -n 40 >&2
        return 1
    fi
    printf 'fuzz %-15s %9d inputs, %6d/s, %5d in the corpus\n' "$target" "$(statistic number_of_executed_units "$log")" \
        "$(statistic average_exec_per_sec "$log")" "$(find "$corpus" -type f | wc -l)"
}

if ! has_cxx; then
    echo "fuzz: skipped, there is no C++ compiler (c++, or what CXX names)" >&2
    exit 0
fi
build
failed=0
for target in "${TARGETS[@]}"; do run "$target" || failed=$((failed + 1)); done
if ((failed > 0)); then
    echo "fuzz: $failed of ${#TARGETS[@]} targets failed; their inputs are under $BUILD/failures" >&2
    exit 1
fi
