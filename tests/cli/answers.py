#!/usr/bin/env python3
"""
Several answers at once (-np): each is, byte for byte, what a run of its own with its seed prints; and embeddings
in place of a text. Usage: answers.py GGRUN
"""
import json
import os
import re
import struct
import sys

sys.dont_write_bytecode = True
from common import *
from gguf_file import File

C = ["-c", "2560"]  # 512 tokens for each of five, as a run alone has
ask = "Tell me a story about a fox"


def parts(out):
    """The answers of a run with -np; their headers must count from 1."""
    found = re.split(rb"(?:\A|\n)==> (\d+) <==\n", out)
    check("nothing before the first", found[0] == b"", out)
    check("numbers", [int(n) for n in found[1::2]] == list(range(1, len(found) // 2 + 1)), out)
    return found[2::2]


def stat(r, name):
    m = re.search(rb"^%s (\S+)$" % name.encode(), r.stderr, re.M)
    return float(m[1]) if m else None


# ---- streams of their own: the same bytes ----
alone = [run(ask, "-s", str(40 + i)).stdout for i in range(5)]  # they end at different lengths
check("five answers", len(set(alone)) == 5 and len({len(a) for a in alone}) > 1)
for args in ([], ["-t", "1"], ["-ub", "3"], ["-ub", "7"], ["-fa", "off"], ["--check-reuse"], ["--no-reuse"], ["-ctk", "f32", "-ctv", "f32"]):
    want = alone if args[:1] not in (["-fa"], ["-ctk"]) else [run(ask, "-s", str(40 + i), *args).stdout for i in range(5)]
    r = run(ask, "-np", "5", "-s", "40", *C, *args)
    check(f"-np 5 {args}", r.returncode == 0 and parts(r.stdout) == want, r.stdout, want)
r = run(ask, "-np", "2", "--sim", "1", "-ngl", "all", "-s", "40", "-c", "1024")
check("on a simulated accelerator", parts(r.stdout) == alone[:2], r)
for n in ("0", "1", "20"):
    r = run(ask, "-np", "3", "-s", "40", "-n", n, "--stats")
    want = [run(ask, "-s", str(40 + i), "-n", n).stdout for i in range(3)]
    check(f"-n {n}", r.returncode == 0 and parts(r.stdout) == want, r, want)
    check(f"stats of -n {n}", stat(r, "tokens_generated") == 3 * int(n) and stat(r, "graphs_built") <= 3, r.stderr)
check("-np 1 has no line", run(ask, "-np", "1", "-s", "40").stdout == alone[0])
r = run(ask, "-np", "64", "-n", "3", "-s", "40", "-c", "16384")
check("64 answers", r.returncode == 0 and len(parts(r.stdout)) == 64 and parts(r.stdout)[4] == run(ask, "-s", "44", "-n", "3").stdout, r)

# ---- one cache for all: nearly the same numbers, so that greedy answers are the same ----
one = run(ask, "--temp", "0", "-n", "60").stdout
r = run(ask, "--temp", "0", "-n", "60", "-np", "3", "-kvu", "--stats")
check("-kvu", r.returncode == 0 and parts(r.stdout) == [one] * 3, r, one)
check("-kvu takes the context once", stat(r, "context_tokens") == 512, r.stderr)

# ---- the limit ----
r = run(ask, "-np", "2", "-c", "512", "--ignore-eos", "-s", "40", "--temp", "1.5")
texts = [run(ask, "-c", "256", "--ignore-eos", "-s", str(40 + i), "--temp", "1.5").stdout for i in range(2)]
check("the context limit", r.returncode == 5 and parts(r.stdout) == texts and b"256" in r.stderr, r, texts)
r = run(ask, "-np", "2", "-kvu", "-c", "100", "--ignore-eos", "-s", "40")
check("the context limit with -kvu", r.returncode == 5 and len(parts(r.stdout)) == 2 and b"100" in r.stderr, r)
r = run(ask, "-np", "3", "-c", "700", "-n", "1")
check("a part is rounded up, and that is said", r.returncode == 0 and b"each of the 3 sequences holds 256 tokens of a context of 768" in r.stderr, r)
check_error("shift", run(ask, "-np", "2", "--context-shift"), 2, "-np 2", "--context-shift")
check_error("in the graph", run(ask, "-np", "2", "-bs"), 2, "-np 2", "-bs")
check_error("65", run(ask, "-np", "65"), 2, "-np", "65", "64")

# ---- a plan is a promise ----
for args in (["-np", "4"], ["-np", "4", "-kvu"]):
    plan = json.loads(run("plan", "--json", *args).stdout)
    r = run(ask, "-n", "2", "--stats", *args)
    check("n_seqs", plan["n_seqs"] == 4 and plan["n_ctx"] == (512 if "-kvu" in args else 256), plan)
    cpu = plan["devices"][0]
    for key, name in (("kv_bytes", "kv_bytes"), ("compute_bytes", "cpu_compute_allocated_bytes")):
        check(f"plan {args}: {key}", cpu[key] and stat(r, name) == cpu[key], cpu, r.stderr)

# ---- bench ----
for args in ([], ["-kvu"]):
    r = run("bench", "-p", "8", "-n", "16", "-d", "0,5", "-r", "2", "-np", "3", "-o", "json", *args)
    rows = json.loads(r.stdout)
    check(f"bench {args}", r.returncode == 0 and [(x["n_prompt"], x["n_gen"], x["n_seqs"]) for x in rows] == [(8, 0, 1), (0, 16, 3)] * 2, r)
    for x in rows:
        for ns, ts in zip(x["samples_ns"], x["samples_ts"]):
            check("tokens per second of all", abs(ts * ns / 1e9 - (8 if x["n_prompt"] else 48)) < 1e-6, x)
check("the table says so", b" tg4 x2 " in run("bench", "-p", "0", "-n", "4", "-r", "1", "-np", "2").stdout)

# ---- embeddings ----
def row(name, i):
    """A row of a Q8_0 tensor of the embedded model as float32: blocks of a scale (f16) and 32 numbers."""
    ne, kind, data = File(tiny).tensors[name]
    n = ne[0] // 32
    x = b""
    for at in range(i * n * 34, (i + 1) * n * 34, 34):
        scale, *q = struct.unpack_from("<e32b", data, at)
        x += struct.pack("<32f", *(scale * v for v in q))
    check("a Q8_0 tensor", kind == 8, kind)
    return x


def logits(*args):
    return run("logits", "-o", "-", *args)


path = os.path.join(tmp, "x.f32")
ids = [1, 696, 789, 262, 453, 5, 90]
open(path, "wb").write(b"".join(row("token_embd.weight", i) for i in ids))
want = logits("--ids", ",".join(map(str, ids))).stdout
for args in ([], ["-ub", "1"], ["-ub", "3"], ["--check-reuse"], ["--sim", "1", "-ngl", "all"]):
    r = logits("--embd", path, *args)
    check(f"rows of token_embd {args}", r.returncode == 0 and r.stdout == want and len(want) > 0, r.stderr)
check("from stdin", run("logits", "-o", "-", "--embd", "-", stdin=open(path, "rb").read()).stdout == want)
rows = json.loads(run("logits", "--json", "--embd", path).stdout)
check("JSON", len(rows) == len(ids) and "id" not in rows[0] and [r["pos"] for r in rows] == list(range(len(ids))), rows[:1])
n_embd = 256
for what, data, words in (("empty", b"", ("0 bytes", str(n_embd))), ("short", b"\0" * (4 * n_embd + 4), (str(4 * n_embd + 4), str(n_embd))),
                          ("NaN", b"\0" * (4 * n_embd) + struct.pack("<f", float("nan")) + b"\0" * (4 * n_embd - 4), ("element 0 of token 1", "nan"))):
    open(path, "wb").write(data)
    check_error(what, logits("--embd", path), 2, "--embd", *words)
check_error("no file", logits("--embd", os.path.join(tmp, "none")), 1, "none")
check_error("a text too", logits("--embd", path, "-p", "x"), 2, "--embd", "a text")
check_error("ids too", logits("--embd", path, "--ids", "1"), 2, "--embd", "--ids")
open(path, "wb").write(b"\0" * (4 * n_embd * 513))
check_error("too many", logits("--embd", path), 2, "513", "512")
finish()
