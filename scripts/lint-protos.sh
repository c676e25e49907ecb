#!/usr/bin/env bash
# Checks the protos with buf, from .tools/ or from PATH: their style, that they break no client of the last release, and that
# the generated code is what they say. A machine without buf is told so; nothing is installed here.
#
#   scripts/lint-protos.sh              checks
#   scripts/lint-protos.sh --released   notes the protos as those of a release, which later ones are compared with
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.tools/bin:$PATH"

# The protos of the last release as buf compiles them, without comments.
readonly RELEASED=proto/released.binpb

if ! command -v buf > /dev/null; then
    echo "protos: not checked, buf is not installed; 'make tools' installs it with npm" >&2
    exit 0
fi
if [[ "${1:-}" == --released ]]; then
    buf build --exclude-source-info -o "$RELEASED"
    exit 0
fi
buf lint
buf breaking --against "$RELEASED"
scripts/generate.sh --check
