# What .ci/run and .ci/thorough have in common; sourced by both, at the root of the checkout.
set -euo pipefail

server_program=../shared/servers/servers

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

# The README's test command: its set-up, and the whole of it.
command=$(sed -n 's/^    \(.*bin\/pytest\)$/\1/p' README.md | head -n 1)
test -n "$command"
setup=${command% && *}

# Tells whether variables name servers already (tests/README.md); then none are started.
servers_are_given() { test -n "${NEO4J_URI:-}${NEO4J2026_URI:-}${QDRANT_URL:-}${POSTGRES_URL:-}"; }

no_outages="TEST_SERVERS names no program that stops and starts these servers: outages are left out"

# Starts servers in the background, where a folder beside this one can: fetching them takes longer than starting them.
start_servers() {
    servers_are_given && return 0
    test -x "$server_program" || return 0
    started=$(mktemp)
    trap '"$server_program" down >/dev/null 2>&1 || true' EXIT
    "$server_program" up "$@" >"$started" 2>"$started.log" &
    starting=$!
}

# Waits for them and sets the variables that name them. Fails where there are none.
use_servers() {
    servers_are_given && return 0
    test -n "${starting:-}" || return 1
    wait "$starting" || { cat "$started.log"; exit 1; }
    eval "$(cat "$started")"
    TEST_SERVERS=$(realpath "$server_program")
    export TEST_SERVERS
}

# Installs the package on a Python 3.13 into .venv-3.13. Fails where there is none.
set_up_newest() {
    local newest
    if python3.13 -c '' 2>/dev/null; then
        newest=$(command -v python3.13)
    else
        newest=$(command -v pyenv >/dev/null && pyenv versions --bare | grep -m 1 '^3\.13') || return 1
        newest=$(pyenv prefix "$newest")/bin/python
    fi
    "$newest" -m venv .venv-3.13
    .venv-3.13/bin/pip install -q --require-hashes -r .ci/constraints.txt
    .venv-3.13/bin/pip install -q --no-deps --no-build-isolation -e .
}
