#!/usr/bin/env bash
# Writes the references of the clients into target/reference: what each of them exports, from the comments of its code.
#
#   scripts/reference.sh        all of them
#   scripts/reference.sh node   one: go, node or rust
#
#   go/boltq.txt           text, by `go doc`
#   node/index.html        by typedoc, whose version clients/node/package-lock.json fixes
#   rust/boltq/index.html  by rustdoc
#
# A warning is a failure. A client whose language is not on the machine is left out with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
readonly target
readonly REFERENCE="$target/reference"

# missing CLIENT TOOL: says that a client is left out, if its tool is not there.
missing() {
    if command -v "$2" > /dev/null; then return 1; fi
    echo "the reference of the client for $1 is NOT written: $2 is not installed" >&2
}

reference_go() (
    mkdir -p "$REFERENCE/go"
    cd clients/go
    go doc -all . > "$REFERENCE/go/boltq.txt"
)

reference_node() (
    cd clients/node
    if [[ ! -x node_modules/.bin/typedoc ]]; then npm ci --no-audit --no-fund --loglevel=error; fi
    npm run --silent docs -- --out "$REFERENCE/node" --logLevel Warn
)

# With the protos, whose messages the client passes on.
reference_rust() {
    mkdir -p "$REFERENCE"
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --quiet --no-deps -p boltq-client -p boltq-proto
    ln -sfn ../doc "$REFERENCE/rust"
}

run() {
    case "$1" in
        go) missing Go go || reference_go ;;
        node) missing Node npm || reference_node ;;
        rust) reference_rust ;;
        *)
            echo "there is no client for '$1'; there are go, node and rust" >&2
            exit 2
            ;;
    esac
}

if (($# == 0)); then
    for client in go node rust; do run "$client"; done
else
    run "$1"
fi
