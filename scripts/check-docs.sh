#!/usr/bin/env bash
# Runs the examples of Markdown files against a real server and compares what they print.
#
#   scripts/check-docs.sh README.md docs/tour.md …
#
# An example is a fenced block marked `console`:
#
#   ```console
#   $ boltq publish -topic email_jobs -payload '{"to":"user@example.com"}'
#   …
#   $ boltq queue purge email_jobs
#   purged 1 message from email_jobs
#   ```
#
# - A line that starts with `$ ` is a command; one that ends with `\` goes on in the next line. The lines up to the
#   next command are what it prints, stdout and stderr together. `…` stands for anything, also for several lines.
# - All examples of a file run in their order, in one shell and one empty folder, with a server of their own whose
#   binaries are in ./bin and on PATH. localhost:9091 and localhost:9090 mean that server.
# - A command whose tool is not installed (grpcurl, curl, jq) is skipped with a message.
#
# - A line `<!-- server: NAME=VALUE … -->` gives the server of the file these variables.
#
# BOLTQ_BIN_DIR is where boltq-server and boltq are, by default those of a debug build.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly START_ATTEMPTS=5
readonly START_SECONDS=10
BIN_DIR="$(realpath "${BOLTQ_BIN_DIR:-${CARGO_TARGET_DIR:-target}/debug}")"
export PATH="$BIN_DIR:$PWD/.tools/bin:$PATH"

work=""
server=""
checked=0
failed=0

stop() {
    local job
    # The server, and what an example left running in the background.
    for job in $(jobs -p); do
        kill "$job" 2> /dev/null || true
        wait "$job" 2> /dev/null || true
    done
    server=""
    if [[ -n "$work" ]]; then
        rm -rf "$work"
        work=""
    fi
}
trap stop EXIT

free_port() {
    local port
    while true; do
        port=$((20000 + RANDOM % 10000))
        if ! (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then
            echo "$port"
            return
        fi
    done
}

# Starts the server of a file. Somebody may take a free port before the server does, so this is tried more than once.
start() {
    local -a settings
    read -ra settings <<< "$(sed -n 's/^<!-- server: \(.*\) -->$/\1/p' "$1")"
    work="$(mktemp -d)"
    ln -s "$BIN_DIR" "$work/bin"
    for ((attempt = 1; attempt <= START_ATTEMPTS; attempt++)); do
        tcp_port="$(free_port)"
        http_port="$(free_port)"
        # Exported, so that a server which an example starts takes the same ports.
        export BOLTQ_ADDR="localhost:$tcp_port" BOLTQ_TCP_PORT="$tcp_port" BOLTQ_HTTP_PORT="$http_port"
        env BOLTQ_STORAGE_MODE=disk BOLTQ_DATA_DIR="$work/data" "${settings[@]}" boltq-server > "$work/server.log" 2>&1 &
        server=$!
        local deadline=$((SECONDS + START_SECONDS))
        while kill -0 "$server" 2> /dev/null && ((SECONDS < deadline)); do
            if boltq health > /dev/null 2>&1; then return; fi
            sleep 0.1
        done
        kill "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
    done
    echo "the server did not start; its last output:" >&2
    tail -n 20 "$work/server.log" >&2
    exit 1
}

# A bash pattern that matches just the text, `…` apart. That is one character or several, depending on the locale.
pattern_of() {
    local text="${1//…/$'\x01'}" pattern="" char
    for ((i = 0; i < ${#text}; i++)); do
        char="${text:i:1}"
        case "$char" in
            $'\x01') pattern+='*' ;;
            [[:alnum:][:space:]]) pattern+="$char" ;;
            *) pattern+="\\$char" ;;
        esac
    done
    printf '%s' "$pattern"
}

skipped() {
    local tool="${1%% *}"
    case "$tool" in
        grpcurl | curl | jq) ! command -v "$tool" > /dev/null ;;
        *) false ;;
    esac
}

# Runs one command in this shell, so that variables live on, and compares.
check() {
    local where="$1" command="$2" expected="$3" actual
    if skipped "$command"; then
        echo "$where: skipped, ${command%% *} is not installed" >&2
        return
    fi
    checked=$((checked + 1))
    set +eu
    pushd "$work" > /dev/null
    eval "$command" > "$work/output" 2>&1 < /dev/null
    popd > /dev/null
    set -eu
    actual="$(cat "$work/output")"
    # shellcheck disable=SC2053  # it is a pattern
    if [[ "$actual" != $(pattern_of "$expected") ]]; then
        failed=$((failed + 1))
        printf '%s: $ %s\n--- expected\n%s\n--- printed\n%s\n---\n' "$where" "$command" "$expected" "$actual" >&2
    fi
}

check_file() {
    local file="$1" line number=0 in_block=false goes_on=false
    local command="" expected="" command_line=0
    finish() {
        if [[ -n "$command" ]]; then check "$file:$command_line" "$command" "${expected%$'\n'}"; fi
        command=""
        expected=""
    }
    while IFS= read -r line <&4 || [[ -n "$line" ]]; do
        number=$((number + 1))
        line="${line//localhost:9091/localhost:$tcp_port}"
        line="${line//localhost:9090/localhost:$http_port}"
        if ! $in_block; then
            if [[ "$line" == '```console' ]]; then in_block=true; fi
        elif [[ "$line" == '```' ]]; then
            finish
            in_block=false
        elif $goes_on; then
            command+=$'\n'"$line"
            [[ "$line" == *\\ ]] || goes_on=false
        elif [[ "$line" == '$ '* ]]; then
            finish
            command="${line#'$ '}"
            command_line=$number
            [[ "$line" != *\\ ]] || goes_on=true
        else
            expected+="$line"$'\n'
        fi
    done 4< "$file"
    if $in_block; then
        echo "$file: the last block is not closed" >&2
        exit 1
    fi
}

for file in "$@"; do
    # Most files of the reference have no examples, and need no server.
    if grep -q '^```console$' "$file"; then
        start "$file"
        check_file "$file"
        stop
    fi
done
echo "console examples: $checked run, $failed failed"
((failed == 0))
