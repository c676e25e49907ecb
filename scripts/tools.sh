#!/usr/bin/env bash
# Installs the tools that some tests use into .tools/, in fixed versions. Does nothing when they are there.
#
#   buf      lints the protos                                   needs npm
#   grpcurl  calls the server as the documentation shows it     needs go
#
# Without npm or go the tool is left out with a message, and the tests that want it say that they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BUF_VERSION=1.75.0
readonly GRPCURL_VERSION=v1.9.4
readonly TOOLS="$PWD/.tools"

# have TOOL VERSION: whether this version was installed by this script.
have() {
    [[ -x "$TOOLS/bin/$1" && "$(cat "$TOOLS/$1.version" 2> /dev/null)" == "$2" ]]
}

# The version is written last, so that an installation that broke off is repeated.
installed() {
    echo "$2" > "$TOOLS/$1.version"
    echo "$1 $2 is installed in .tools/bin"
}

skipped() {
    echo "$1 is not installed: this needs $2; what uses it is skipped" >&2
}

install_buf() {
    npm install --prefix "$TOOLS" --no-save --no-audit --no-fund --loglevel=error "@bufbuild/buf@$BUF_VERSION"
    ln -sf ../node_modules/.bin/buf "$TOOLS/bin/buf"
    installed buf "$BUF_VERSION"
}

install_grpcurl() {
    GOBIN="$TOOLS/bin" go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$GRPCURL_VERSION"
    installed grpcurl "$GRPCURL_VERSION"
}

mkdir -p "$TOOLS/bin"

if ! have buf "$BUF_VERSION"; then
    if command -v npm > /dev/null; then install_buf; else skipped buf npm; fi
fi
if ! have grpcurl "$GRPCURL_VERSION"; then
    if command -v go > /dev/null; then install_grpcurl; else skipped grpcurl go; fi
fi
