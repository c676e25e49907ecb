#!/usr/bin/env bash
# Installs the tools that some tests use into .tools/, in fixed versions. Does nothing when they are there.
#
#   buf                                checks the protos, and generates code       needs npm
#   protoc-gen-es                      code for Node                               needs npm
#   protoc-gen-go, protoc-gen-go-grpc  code for Go                                 needs go
#   staticcheck                        checks the Go client                        needs go
#   grpcurl                            calls the server as the documentation does  needs go
#
# Without npm or go the tool is left out with a message, and the tests that want it say that they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

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

# Each package has a folder of its own: npm removes from a folder what it did not put there by the same command.
with_npm() {
    local tool="$1" package="$2" version="$3"
    if have "$tool" "$version"; then return; fi
    if ! command -v npm > /dev/null; then
        skipped "$tool" npm
        return
    fi
    npm install --prefix "$TOOLS/npm/$tool" --no-save --no-audit --no-fund --loglevel=error "$package@$version"
    ln -sf "../npm/$tool/node_modules/.bin/$tool" "$TOOLS/bin/$tool"
    installed "$tool" "$version"
}

with_go() {
    local tool="$1" package="$2" version="$3"
    if have "$tool" "$version"; then return; fi
    if ! command -v go > /dev/null; then
        skipped "$tool" go
        return
    fi
    GOBIN="$TOOLS/bin" go install "$package@$version"
    installed "$tool" "$version"
}

skipped() {
    echo "$1 is not installed: this needs $2; what uses it is skipped" >&2
}

mkdir -p "$TOOLS/bin"

with_npm buf @bufbuild/buf 1.75.0
with_npm protoc-gen-es @bufbuild/protoc-gen-es 2.17.0
with_go protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go v1.36.12
with_go protoc-gen-go-grpc google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.0
with_go staticcheck honnef.co/go/tools/cmd/staticcheck v0.8.2
with_go grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl v1.9.4
