#!/usr/bin/env python3
"""Damaged model files through the whole program: never a signal, always one clear line and a documented code.

Usage: hostile.py GGRUN. Works on damaged copies of the embedded model; the same mutations are tried with `run`,
`info` and `tokenize`. A crash under a sanitizer shows as an exit code or text that is not on the list.
"""
import atexit
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ggrun = sys.argv[1]
source = os.environ["GGRUN_SOURCE_DIR"]
tmp = tempfile.mkdtemp(dir=os.environ.get("GGRUN_TEST_TMP"))
atexit.register(shutil.rmtree, tmp, True)
good = open(os.path.join(source, "cli", "ggrun-tiny-q8_0.gguf"), "rb").read()
path = os.path.join(tmp, "x.gguf")
failures = []


def run(args, data=None, where=path, stdin=b""):
    if data is not None:
        with open(where, "wb") as f:
            f.write(data)
    return subprocess.run([ggrun] + args, input=stdin, capture_output=True, timeout=60)


def check(what, r, codes, words=()):
    """Exit code on the list, empty stdout, exactly one line on stderr that has all the words."""
    err = r.stderr.decode("utf-8", "replace")
    lines = [l for l in err.splitlines() if not l.startswith("ggrun: warning:")]
    ok = r.returncode in codes and not r.stdout and len(lines) == 1 and lines[0].startswith("ggrun: ")
    ok = ok and all(w.lower() in err.lower() for w in words)
    if not ok:
        failures.append(f"{what}: exit {r.returncode}, stdout {r.stdout[:60]!r}, stderr {err[:400]!r}, wanted {words}")


def finish():
    for f in failures[:20]:
        print(f)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


RUN = ["-m", path, "-p", "a", "-n", "1"]

# A file cut at each of 200 places: the message names the file's own trouble, and nothing is printed.
for i in range(200):
    n = i if i < 40 else len(good) * i // 200
    check(f"cut at {n}", run(RUN, good[:n]), {1, 3}, ["x.gguf"])

# The header: magic, version, counts.
for name, offset, fmt, values in [
    ("magic", 0, "<I", [0, 0x46554746, 0x47475546]),
    ("version", 4, "<I", [0, 1, 4, 0x03000000, 0xFFFFFFFF]),
    ("tensor count", 8, "<Q", [0, 1, 37, 39, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**64 - 1]),
    ("key count", 16, "<Q", [0, 1, 33, 35, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**64 - 1]),
]:
    for v in values:
        data = bytearray(good)
        struct.pack_into(fmt, data, offset, v)
        check(f"{name} = {v:#x}", run(RUN, bytes(data)), {1, 3})


def keys(data):
    """(key, offset of value type, offset of value) of each key, and the offset of the tensor list."""
    at = 24
    out = []

    def string(at):
        n = struct.unpack_from("<Q", data, at)[0]
        return data[at + 8:at + 8 + n], at + 8 + n

    size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key, at = string(at)
        kind = struct.unpack_from("<I", data, at)[0]
        out.append((key.decode(), at, at + 4))
        at += 4
        if kind == 8:
            _, at = string(at)
        elif kind == 9:
            elem, n = struct.unpack_from("<IQ", data, at)
            at += 12
            for _ in range(n):
                at = string(at)[1] if elem == 8 else at + size[elem]
        else:
            at += size[kind]
    return out, at


table, tensors_at = keys(good)

# Each key: its name's length, its type, and its value when it is a number or a string's length.
for key, type_at, value_at in table:
    kind = struct.unpack_from("<I", good, type_at)[0]
    for v in (13, 255, 9 if kind != 9 else 14):
        data = bytearray(good)
        struct.pack_into("<I", data, type_at, v)
        check(f"type of {key} = {v}", run(RUN, bytes(data)), {1, 3})
    for v in (2**31, 2**61, 2**64 - 1):
        data = bytearray(good)
        struct.pack_into("<Q", data, type_at - len(key) - 8, v)
        check(f"length of key {key} = {v:#x}", run(RUN, bytes(data)), {1, 3})
        if kind in (8, 9):
            data = bytearray(good)
            struct.pack_into("<Q", data, value_at + (4 if kind == 9 else 0), v)
            check(f"length of value {key} = {v:#x}", run(RUN, bytes(data)), {1, 3}, [key] if kind == 9 else [])

# Hyperparameters out of range: the message names the key.
for key, type_at, value_at in table:
    kind = struct.unpack_from("<I", good, type_at)[0]
    if key.startswith("llama.") and kind == 4 and key not in ("llama.context_length",):
        for v in (0, 5, 2**31 - 1, 2**32 - 1):
            data = bytearray(good)
            struct.pack_into("<I", data, value_at, v)
            check(f"{key} = {v}", run(RUN, bytes(data)), {3, 4})
    if key.startswith("llama.") and kind == 6:
        for v in (0.0, -1.0, float("nan"), float("inf")):
            data = bytearray(good)
            struct.pack_into("<f", data, value_at, v)
            check(f"{key} = {v}", run(RUN, bytes(data)), {3}, [key])

# Each tensor: dimensions, type, offset.
at = tensors_at
for _ in range(struct.unpack_from("<Q", good, 8)[0]):
    n = struct.unpack_from("<Q", good, at)[0]
    name = good[at + 8:at + 8 + n].decode()
    dims_at = at + 8 + n
    n_dims = struct.unpack_from("<I", good, dims_at)[0]
    kind_at = dims_at + 4 + 8 * n_dims
    at = kind_at + 4 + 8
    if not name.startswith("blk.1") and name.startswith("blk"):
        continue
    for v in (0, 5, 2**31):
        data = bytearray(good)
        struct.pack_into("<I", data, dims_at, v)
        check(f"{name}: {v} dimensions", run(RUN, bytes(data)), {3}, [name])
    for v in (0, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**64 - 1):
        for d in range(n_dims):
            data = bytearray(good)
            struct.pack_into("<Q", data, dims_at + 4 + 8 * d, v)
            check(f"{name}: ne[{d}] = {v:#x}", run(RUN, bytes(data)), {3}, [name])
    for v in (4, 31, 33, 36, 43, 200, 2**32 - 1):
        data = bytearray(good)
        struct.pack_into("<I", data, kind_at, v)
        check(f"{name}: type {v}", run(RUN, bytes(data)), {3}, [name, str(v)])
    for v in (1, len(good), 2**61, 2**63 - 1, 2**64 - 1, 2**64 - 64):
        data = bytearray(good)
        struct.pack_into("<Q", data, kind_at + 4, v)
        check(f"{name}: offset {v:#x}", run(RUN, bytes(data)), {3}, [name])

# What people save as .gguf by mistake, and what is no file at all.
for what, data, words in [
    ("git-lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98362432\n", ["git-lfs"]),
    ("web page", b"<!DOCTYPE html><html><head><title>404</title></head><body></body></html>" + b" " * 128, ["web page"]),
    ("old format", b"tjgg" + bytes(196), ["old"]),
    ("empty file", b"", ["empty"]),
    ("zip", b"PK\x03\x04" + bytes(196), []),
    ("noise", bytes(random.Random(1).randrange(256) for _ in range(300)), []),
]:
    check(what, run(RUN, data), {1, 3}, words + ["x.gguf"])
check("directory", run(["-m", tmp, "-p", "a"]), {1, 3}, ["directory"])
check("missing file", run(["-m", tmp + "/none.gguf", "-p", "a"]), {1}, ["none.gguf"])
check("/dev/null", run(["-m", "/dev/null", "-p", "a"]), {1, 3}, ["/dev/null"])
fifo = os.path.join(tmp, "fifo.gguf")
os.mkfifo(fifo)
check("fifo", run(["-m", fifo, "-p", "a"]), {1, 3}, ["fifo"])

# Random damage in metadata: any documented end is fine, a signal or a sanitizer's report is not.
rng = random.Random(42)
for i in range(300):
    data = bytearray(good)
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(tensors_at + 2500)] = rng.randrange(256)
    r = run(["-m", path, "-p", "Once upon a time", "-n", "2", "-c", "64"] if i % 3 else
            ["tokenize", "-m", path, "-p", "Once", "--json"] if i % 2 else ["info", "-m", path], bytes(data))
    if r.returncode not in (0, 1, 2, 3, 4, 5) or b"Sanitizer" in r.stderr or b"runtime error" in r.stderr:
        failures.append(f"random damage {i}: exit {r.returncode}: {r.stderr[-400:]!r}")

finish()
