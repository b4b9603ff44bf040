#!/bin/sh
# Dependencies point one way: cli -> runtime -> backends -> gguf -> gguf/base. Includes carry the folder, so
# one grep per folder proves it. Prints every include that points the wrong way; exit 1 if there is one.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
bad=0
forbid() { # FOLDER PATTERN
    hits=$(grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"($2)" --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.def' "$1")
    if [ -n "$hits" ]; then
        printf '%s\n' "$hits" | sed "s|\$|    <- $1 must not include this|"
        bad=1
    fi
}
forbid gguf/base '(gguf/[a-z_]+\.|backends/|runtime/|cli/|tests/)'
forbid gguf '(backends/|runtime/|cli/|tests/)'
forbid backends '(runtime/|cli/|tests/)'
forbid runtime '(cli/|tests/)'
forbid cli 'tests/'
# Quoted includes carry their folder.
hits=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"/]+"' --include='*.[ch]' gguf backends runtime cli)
[ -z "$hits" ] || { printf '%s    <- include without its folder\n' "$hits"; bad=1; }
# Nothing below cli/ prints, reads the environment or exits.
hits=$(grep -rnE '(^|[^a-z_])(printf|fprintf|puts|perror|getenv|exit|_exit|abort)[[:space:]]*\(' --include='*.c' gguf backends runtime |
    grep -vE '^[^:]+:[0-9]+:[[:space:]]*(\*|/\*|//)')
[ -z "$hits" ] || { printf '%s\n' "$hits" | sed 's|$|    <- only cli/ prints, reads the environment or exits|'; bad=1; }
exit $bad
