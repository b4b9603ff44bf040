# Shared by the scripts here: find what is missing, install it, configure, build. Sourced, POSIX sh.
# All chatter goes to stderr: stdout belongs to the program that is run in the end.

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }

# need COMMAND-OR-PC-FILE PACKAGE: add PACKAGE to $missing unless it is there already.
need_cmd() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need_lib() { pkg-config --exists "$1" 2>/dev/null || missing="$missing $2"; }

# Packages for building ($1 = build) or for building and testing ($1 = test); and pip ($2 = pip).
install_missing() {
    missing=
    need_cmd gcc gcc
    need_cmd meson meson
    need_cmd ninja ninja-build
    need_cmd pkg-config pkg-config
    [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
    need_lib openblas libopenblas-dev
    need_lib libcjson libcjson-dev
    need_lib libpcre2-8 libpcre2-dev
    need_lib libutf8proc libutf8proc-dev
    if [ "$1" = test ]; then
        need_lib cmocka libcmocka-dev
        need_cmd ctest cmake
    fi
    if [ "${2:-}" = pip ]; then # for scripts/get-models
        python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
    fi
    [ -z "$missing" ] && return 0
    command -v apt-get >/dev/null 2>&1 ||
        die "needed and not found:$missing (Debian's names); install them with your package manager"
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null 2>&1; then
        as_root=sudo
        say "installing$missing (sudo may ask for your password)"
    else
        die "needed and not found:$missing; as root, run: apt-get install$missing"
    fi
    say "installing:$missing"
    # shellcheck disable=SC2086
    { $as_root apt-get update -q &&
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -qy --no-install-recommends $missing; } \
        >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "could not install:$missing"; }
}

# build DIR OPTIONS...: configure once, then build; the log is shown only when something fails.
build() {
    dir=$1
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        say "configuring $dir"
        meson setup "$dir" "$root" "$@" >"$log" 2>&1 || { tail -n 40 "$log" >&2; die "could not configure $dir"; }
    fi
    if ! ninja -C "$dir" -n 2>/dev/null | grep -q 'no work to do'; then
        say "building $dir"
        ninja -C "$dir" >"$log" 2>&1 || { grep -v '^\[' "$log" | tail -n 60 >&2; die "could not build $dir"; }
    fi
}

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
