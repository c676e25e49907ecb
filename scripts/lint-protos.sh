#!/usr/bin/env bash
# Lints the protos with buf, from .tools/ or from PATH. A machine without it is told so; nothing is installed here.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.tools/bin:$PATH"

if ! command -v buf > /dev/null; then
    echo "buf lint: skipped, buf is not installed; 'make tools' installs it with npm" >&2
    exit 0
fi
buf lint
