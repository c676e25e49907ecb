#!/usr/bin/env bash
# Writes the generated code of the clients, clients/go/gen and clients/node/src/gen, from the protos.
#
#   scripts/generate.sh           writes it
#   scripts/generate.sh --check   changes nothing; fails if what is there is not what would be written
#
# It needs buf and three plugins, which `make tools` installs into .tools/ with go and npm. Without them `--check` says that
# it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.tools/bin:$PATH"

readonly NEEDED=(buf protoc-gen-go protoc-gen-go-grpc protoc-gen-es)
readonly WRITTEN=(clients/go/gen clients/node/src/gen)
readonly MODE="${1:-}"

for tool in "${NEEDED[@]}"; do
    if command -v "$tool" > /dev/null; then continue; fi
    if [[ "$MODE" == --check ]]; then
        echo "generated code: not compared with the protos, $tool is not installed; 'make tools' installs it with go and npm" >&2
        exit 0
    fi
    echo "$tool is not installed; 'make tools' installs it with go and npm" >&2
    exit 1
done

if [[ "$MODE" != --check ]]; then
    buf generate
    exit 0
fi

fresh="$(mktemp -d)"
trap 'rm -rf "$fresh"' EXIT
buf generate -o "$fresh"
for folder in "${WRITTEN[@]}"; do
    if ! diff -rq "$fresh/$folder" "$folder" >&2; then
        echo "$folder is not what the protos say; run 'make generate' and commit what it writes" >&2
        exit 1
    fi
done
echo "generated code: as the protos say"
