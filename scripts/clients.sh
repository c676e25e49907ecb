#!/usr/bin/env bash
# Tests clients against real servers, which are built first.
#
#   scripts/clients.sh                  those for Go, Node and Rust
#   scripts/clients.sh go               one of them
#   scripts/clients.sh go -run Worker   with arguments for its test runner
#
# A client whose language is not on the machine is left out with a message. BOLTQ_SERVER_BIN and BOLTQ_TESTBED_BIN name
# binaries that are to be used instead of building them.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH"

readonly GO_TIMEOUT=10m

# The binaries that tests start; they find them by these variables.
build() {
    local target
    target="$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug"
    if [[ -z "${BOLTQ_SERVER_BIN:-}" ]]; then
        # The packages that the harness of the tests names, so that nothing is compiled twice.
        cargo build -p boltq-server -p boltq-cli
        export BOLTQ_SERVER_BIN="$target/boltq-server"
    fi
    if [[ -z "${BOLTQ_TESTBED_BIN:-}" ]]; then
        # Of the workspace: so it is compiled with what `cargo test --workspace` has compiled.
        cargo build --workspace --bin boltq-testbed
        export BOLTQ_TESTBED_BIN="$target/boltq-testbed"
    fi
}

# missing CLIENT TOOL: says that a client is left out, if its tool is not there.
missing() {
    if command -v "$2" > /dev/null; then return 1; fi
    echo "the client for $1 is NOT tested: $2 is not installed" >&2
}

client_go() (
    cd clients/go
    local unformatted
    unformatted="$(gofmt -l .)"
    if [[ -n "$unformatted" ]]; then
        printf 'not formatted; run gofmt -w in clients/go:\n%s\n' "$unformatted" >&2
        exit 1
    fi
    go vet ./...
    if command -v staticcheck > /dev/null; then
        staticcheck ./...
    else
        echo "clients/go: staticcheck is left out, it is not installed; 'make tools' installs it" >&2
    fi
    local race=()
    # The race detector needs a C compiler.
    if [[ "$(go env CGO_ENABLED)" == 1 ]]; then race=(-race); fi
    go test "${race[@]}" -timeout "$GO_TIMEOUT" "$@" ./...
)

client_node() (
    cd clients/node
    npm ci --no-audit --no-fund --loglevel=error
    npm test -- "$@"
)

client_rust() {
    cargo test -p boltq-client "$@"
}

run() {
    local client="$1"
    shift
    case "$client" in
        go) missing Go go || { build && client_go "$@"; } ;;
        node) missing Node npm || { build && client_node "$@"; } ;;
        rust) build && client_rust "$@" ;;
        *)
            echo "there is no client for '$client'; there are go, node and rust" >&2
            exit 2
            ;;
    esac
}

if (($# == 0)); then
    for client in go node rust; do run "$client"; done
else
    run "$@"
fi
