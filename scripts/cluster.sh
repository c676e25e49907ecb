#!/usr/bin/env bash
# A cluster on this machine, for developers: nodes n1, n2, … that keep everything under one directory.
#
#   scripts/cluster.sh start     starts what does not run yet, and waits until every node votes
#   scripts/cluster.sh status    which nodes run, and what they say about the cluster
#   scripts/cluster.sh stop      SIGTERM to all nodes, and waits until they are gone
#   scripts/cluster.sh clean     stop, and remove data, logs and secret
#
# Environment:
#   N         nodes to start (3); more than before join, fewer leave the others as they are
#   DIR       where everything is kept (data/cluster)
#   BASE      added to all ports (0): n1 has 9091, 9090 and 9100, n2 has 9191, 9190 and 9200, and so on
#   PROFILE   release, or dev for a debug build (release)
#   SECRET    what nodes prove themselves with, at least 16 bytes; drawn if it is not given
#   BOLTQ_BIN_DIR             where boltq-server and boltq are, by default those of PROFILE
#   BOLTQ_API_KEY, BOLTQ_LOG  are passed to the nodes; other BOLTQ_* variables are not
#
# BASE and SECRET are those of the first start until `clean`. DIR/nX/boltq.json is the configuration of a node, written
# once, so that it can be changed; node.log is what it says, data/ what it has. A node whose data/ was removed while it
# was stopped comes back as a new one and joins the others.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly READY_SECONDS=60
readonly STOP_SECONDS=30
readonly HOST=127.0.0.1
readonly PORT_STEP=100
readonly NODES_MAX=99

fail() {
    echo "cluster: $*" >&2
    exit 1
}

DIR="$(realpath -m "${DIR:-data/cluster}")"
PROFILE="${PROFILE:-release}"
BIN_DIR="$(realpath -m "${BOLTQ_BIN_DIR:-${CARGO_TARGET_DIR:-target}/${PROFILE/#dev/debug}}")"
N="${N:-3}"
[[ "$N" =~ ^[1-9][0-9]?$ ]] || fail "N=$N: from 1 to $NODES_MAX nodes"
base="${BASE:-0}"
if [[ -f "$DIR/base" ]]; then
    base="$(< "$DIR/base")"
    [[ "${BASE:-$base}" == "$base" ]] || fail "$DIR was made with BASE=$base; make cluster-clean removes it"
fi
[[ "$base" =~ ^(0|[1-9][0-9]{0,4})$ ]] || fail "BASE=$base: a number to add to the ports"
((9100 + base + PORT_STEP * (N - 1) <= 65535)) || fail "BASE=$base: there are no ports for $N nodes"

# The address of a node for a purpose, by the port that the first node has for it.
address() { echo "$HOST:$(($2 + base + PORT_STEP * ($1 - 1)))"; }
messaging() { address "$1" 9091; }
admin() { address "$1" 9090; }
raft() { address "$1" 9100; }
port() { echo "${1##*:}"; }

# The nodes that DIR knows, by number.
known() {
    local number
    for ((number = 1; number <= NODES_MAX; number++)); do
        if [[ -f "$DIR/n$number/boltq.json" ]]; then echo "$number"; fi
    done
}

# The process of a node, or nothing if it does not run. The number in the file alone proves nothing: by now it may be that
# of another process.
process() {
    local dir="$DIR/n$1" pid="" arguments=""
    if [[ -f "$dir/pid" ]]; then pid="$(< "$dir/pid")"; fi
    [[ "$pid" =~ ^[0-9]+$ ]] || return 0
    if [[ -d /proc/self ]]; then
        arguments="$(tr '\0' ' ' < "/proc/$pid/cmdline")" || true
    else
        arguments="$(ps -o args= -p "$pid")" || true
    fi 2> /dev/null
    if [[ "$arguments" == *boltq-server*"$dir/boltq.json"* ]]; then echo "$pid"; fi
}

# What a node says about the cluster.
cluster_status() { "$BIN_DIR/boltq" --addr "$(messaging "$1")" cluster status "${@:2}"; }

# Whether a node votes in every group, and knows who leads it.
votes() {
    local said
    said="$(cluster_status "$1" --output json 2> /dev/null)" || return 1
    [[ "$said" == *'"leader_id":"'* ]] || return 1
    [[ ! "$said" =~ '"leader_id":""'|'"state":"'(GROUP_STATE_)?(CANDIDATE|LEARNER|SHUTDOWN|UNSPECIFIED) ]]
}

prepare() {
    umask 077
    mkdir -p "$DIR"
    echo "$base" > "$DIR/base"
    if [[ ! -s "$DIR/secret" ]]; then
        echo "${SECRET:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}" > "$DIR/secret"
    fi
    [[ "${SECRET:-$(< "$DIR/secret")}" == "$(< "$DIR/secret")" ]] ||
        fail "$DIR has another SECRET; make cluster-clean removes it"
}

configure() {
    local dir="$DIR/n$1" seeds="" number
    if [[ -f "$dir/boltq.json" ]]; then return; fi
    for ((number = 1; number <= N; number++)); do
        seeds+="${seeds:+, }\"$(admin "$number")\""
    done
    mkdir -p "$dir"
    cat > "$dir/boltq.json.tmp" << END
{
  "server": { "host": "$HOST", "http_port": $(port "$(admin "$1")"), "tcp_port": $(port "$(messaging "$1")") },
  "storage": { "mode": "disk" },
  "cluster": {
    "enabled": true,
    "node_id": "n$1",
    "raft_addr": "$(raft "$1")",
    "seeds": [$seeds]
  }
}
END
    mv "$dir/boltq.json.tmp" "$dir/boltq.json"
}

launch() {
    local dir="$DIR/n$1" variable
    # A group of processes of its own, so that an interrupt at the terminal does not reach it.
    set -m
    (
        for variable in "${!BOLTQ_@}"; do
            case "$variable" in
                BOLTQ_API_KEY | BOLTQ_LOG) ;;
                *) unset "$variable" ;;
            esac
        done
        BOLTQ_CLUSTER_SECRET="$(< "$DIR/secret")"
        export BOLTQ_CLUSTER_SECRET
        # Once the cluster is there, n1 without data is one more node that joins, and must not found another cluster.
        if [[ "$1" == 1 && ! -f "$DIR/founded" ]]; then export BOLTQ_BOOTSTRAP=true; fi
        trap '' HUP
        exec "$BIN_DIR/boltq-server" --config "$dir/boltq.json" --data-dir "$dir/data" \
            < /dev/null >> "$dir/node.log" 2>&1
    ) &
    set +m
    echo $! > "$dir/pid"
}

await() {
    local deadline="$1" number="$2"
    until votes "$number"; do
        if [[ -z "$(process "$number")" ]]; then
            tail -n 5 "$DIR/n$number/node.log" >&2
            fail "n$number ended; all it said is in $DIR/n$number/node.log"
        fi
        ((SECONDS < deadline)) || fail "n$number does not vote after $READY_SECONDS s; see $DIR/n$number/node.log"
        sleep 0.2
    done
}

start() {
    local number deadline binary
    for binary in boltq-server boltq; do
        [[ -x "$BIN_DIR/$binary" ]] || fail "$BIN_DIR/$binary is missing; 'make cluster' builds it"
    done
    prepare
    for ((number = 1; number <= N; number++)); do
        configure "$number"
        if [[ -z "$(process "$number")" ]]; then launch "$number"; fi
    done
    deadline=$((SECONDS + READY_SECONDS))
    for ((number = 1; number <= N; number++)); do await "$deadline" "$number"; done
    touch "$DIR/founded"
    list
    echo "logs and data: $DIR"
}

list() {
    local number pid
    printf '%-5s %-17s %-17s %-17s %s\n' NODE MESSAGING ADMIN RAFT PROCESS
    for number in $(known); do
        pid="$(process "$number")"
        printf '%-5s %-17s %-17s %-17s %s\n' "n$number" "$(messaging "$number")" "$(admin "$number")" \
            "$(raft "$number")" "${pid:--}"
    done
}

status() {
    local number
    [[ -n "$(known)" ]] || fail "there is none in $DIR; 'make cluster' starts one"
    list
    for number in $(known); do
        if [[ -n "$(process "$number")" ]] && cluster_status "$number"; then return; fi
    done
    fail "no node answers"
}

stop() {
    local number pid deadline=$((SECONDS + STOP_SECONDS))
    for number in $(known); do
        pid="$(process "$number")"
        if [[ -n "$pid" ]]; then kill -TERM "$pid" || true; fi
    done
    for number in $(known); do
        while pid="$(process "$number")" && [[ -n "$pid" ]]; do
            ((SECONDS < deadline)) || fail "n$number (process $pid) runs on after $STOP_SECONDS s"
            sleep 0.1
        done
        rm -f "$DIR/n$number/pid"
    done
}

clean() {
    local number
    stop
    # Only what this script made: DIR may be anything.
    for number in $(known); do rm -rf "${DIR:?}/n$number"; done
    rm -f "$DIR/base" "$DIR/secret" "$DIR/founded"
    rmdir "$DIR" 2> /dev/null || true
}

case "${1:-}" in
    start | status | stop | clean) "$1" ;;
    *) fail "usage: scripts/cluster.sh start | status | stop | clean" ;;
esac
