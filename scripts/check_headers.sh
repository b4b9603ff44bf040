#!/bin/sh
# Every header compiles on its own, twice in one file, without a warning.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
bad=0
for h in $(find gguf backends runtime cli -name '*.h' ! -name 'simd_*.h' | sort); do
    printf '#include "%s"\n#include "%s"\ntypedef int not_empty;\n' "$h" "$h" > "$tmp/h.c"
    "${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -Wno-unused-function -I. -fsyntax-only "$tmp/h.c" || { echo "    <- $h"; bad=1; }
done
exit $bad
