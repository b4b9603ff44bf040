#!/usr/bin/env python3
"""Where layers and weights go, on simulated accelerators: always the bytes of the CPU. Usage: devices.py GGRUN"""
import json
import math
import os
import random
import re
import struct

import gguf_file

from common import *

ASK = ("Tell me a story about a fox", "-n", "24", "--temp", "0")
N_LAYER = 4  # of the embedded model; the output is one more
want = run(*ASK).stdout
check("the CPU tells a story", len(want) > 40, want)


def splits(*args):
    """Devices of the splits of the last plan, by --sched-debug."""
    r = run(*ASK, *args, "--sched-debug")
    lines = r.stderr.decode().split("split 0: ")[-1].splitlines()
    return [lines[0].split(",")[0]] + [m[1] for l in lines for m in [re.match(r"split \d+: (\w+),", l)] if m]


# ---- any placement gives the same text ----
KINDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "norm", "token_embd")
matrix = [["--sim", "1", "-ngl", str(n)] for n in range(N_LAYER + 3)]
matrix += [["--sim", str(n)] for n in (1, 2, 3, 4, 7)]
matrix += [["--sim", "1", "-ot", f"{k}.*=SIM0", "-ngl", "0"] for k in KINDS]
matrix += [["--sim", "1", "-ot", f"{k}.*=CPU"] for k in KINDS]
matrix += [["--sim", "2", "-ot", f"{k}.*=SIM1_ROWS,.*=SIM0"] for k in KINDS]
matrix += [["--sim", "2", *a] for a in (
    ["-nkvo"], ["-nkvo", "-ngl", "2"], ["-ts", "1,3"], ["-ts", "0,1"], ["-ts", "1"], ["-sm", "none"],
    ["-sm", "none", "-mg", "1"], ["-sm", "row"], ["-sm", "row", "-mg", "1", "-ts", "3,1"], ["-sm", "row", "-ts", "0,1"],
    ["-sm", "row", "-ngl", "2", "-ub", "7"], ["-sm", "row", "-fa", "off", "-nkvo"], ["-ub", "1"], ["-ub", "8"], ["--slots", "2", "-ub", "4"], ["--slots", "4", "-ub", "2", "-nkvo"], ["--slots", "3", "-ub", "4", "-ngl", "3", "-fa", "off"], ["-ub", "3", "-ngl", "3"], ["--no-reuse"],
    ["-fa", "off"], ["-fa", "off", "-ngl", "2"], ["-ctk", "q8_0", "-ctv", "q8_0"], ["--no-mmap"], ["-t", "1"],
    ["--check-reuse", "-ngl", "3"])]
matrix += [["--sim", "3", "--slots", str(n), *a] for n in (2, 3, 8) for a in (["-ub", "3"], ["-ub", "2", "-nkvo"], ["-ub", "5", "-ngl", "3"])]
matrix += [["--slots", "4", "-ub", "3"], ["--sim", "2", "--slots", "2", "-ub", "3", "--check-reuse"]]
for args in matrix:
    ref = want if "q8_0" not in args else run(*ASK, *args[2:]).stdout
    r = run(*ASK, *args)
    check(f"the same text {args}", r.returncode == 0 and r.stdout == ref, r.returncode, r.stdout, r.stderr)

# ---- where the work is ----
check("no layers", splits("--sim", "1", "-ngl", "0") == ["CPU"], splits("--sim", "1", "-ngl", "0"))
for n in range(1, N_LAYER + 1):
    got = splits("--sim", "1", "-ngl", str(n))
    check(f"{n} layers", got == ["CPU", "SIM0"], got)
check("all layers", splits("--sim", "1") == splits("--sim", "1", "-ngl", "99") == ["CPU", "SIM0"])
check("two", splits("--sim", "2") == ["CPU", "SIM0", "SIM1"], splits("--sim", "2"))
check("all on one, asked in two ways",
      splits("--sim", "2", "-sm", "none", "-mg", "0") == splits("--sim", "2", "-ts", "1,0") == ["CPU", "SIM0"])
check("all on the other", splits("--sim", "2", "-sm", "none", "-mg", "1") == splits("--sim", "2", "-ts", "0,1") == ["CPU", "SIM1"])

# ---- what a pattern takes ----
r = run(*ASK, "--sim", "1", "-ot", r"blk\.[0-9]{1,2}\.ffn_up.*=CPU,ffn_.*=SIM0")
check("coverage", b"puts 4 tensors into 'CPU'" in r.stderr and b"puts 12 tensors into 'SIM0'" in r.stderr, r.stderr)

# ---- nonsense ----
for args, words in (
    (["-ngl", "3"], ["-ngl", "there is none"]),
    (["-ngl", "all"], ["-ngl", "there is none"]),
    (["--sim", "1", "-ngl", "-1"], ["-ngl", "'-1'"]),
    (["--sim", "1", "-ngl", "x"], ["-ngl", "'x'"]),
    (["--sim", "0"], ["--sim", "'0'"]),
    (["--sim", "x"], ["--sim", "'x'"]),
    (["--sim", "1", "-dev", "SIM1"], ["-dev", "'SIM1'", "SIM0"]),
    (["--sim", "1", "-dev", "SIM0,SIM0"], ["-dev", "'SIM0'"]),
    (["--sim", "1", "-dev", ""], ["-dev"]),
    (["--sim", "2", "-mg", "2"], ["-mg", "2 accelerators"]),
    (["--sim", "2", "-ts", "1,1,1"], ["-ts", "2 accelerators"]),
    (["--sim", "2", "-ts", "0,0"], ["-ts"]),
    (["--sim", "2", "-ts", "1,-1"], ["-ts"]),
    (["--sim", "2", "-ts", "nan,1"], ["-ts"]),
    (["--sim", "2", "-ts", "1,"], ["-ts"]),
    (["--sim", "1", "-ot", ""], ["-ot", "expected"]),
    (["--sim", "1", "-ot", "x"], ["-ot", "expected"]),
    (["--sim", "1", "-ot", "=CPU"], ["-ot", "expected"]),
    (["--sim", "1", "-ot", "[=CPU"], ["-ot", "pattern"]),
    (["--sim", "1", "-ot", "ffn=NODEV"], ["NODEV", "SIM0", "CPU"]),
    (["--sim", "1", "-ot", "^(.+.+)+(.+.+)+[#!]=CPU"], ["cannot be matched", "limit"]),
    (["--sim", "1", "-ot", "nomatch=CPU"], ["nomatch", "no tensor"]),
    (["--sim", "1", "-cmoe"], ["-cmoe", "no experts"]),
    (["--sim", "1", "-ncmoe", "1"], ["-ncmoe", "no experts"]),
):
    check_error(f"{args}", run(*ASK, *args), 2, *words)

# ---- which devices ----
check("their order", splits("--sim", "3", "-dev", "sim2,SIM0") == ["CPU", "SIM2", "SIM0"], splits("--sim", "3", "-dev", "sim2,SIM0"))
check("one of them", splits("--sim", "3", "-dev", "SIM1") == ["CPU", "SIM1"])
check("none of them", splits("--sim", "3", "-dev", "none") == ["CPU"])
r = run("--list-devices", "--sim", "1GiB,2GiB", "-dev", "SIM1")
check("a list", [l.split()[0] for l in r.stdout.decode().splitlines()] == ["SIM1", "CPU"] and b"2.0 GiB" in r.stdout and not r.stderr, r)
r = run(*ASK, "--mlock")
check("locked in memory, or an error", r.stdout == want or (r.returncode == 4 and b"--mlock" in r.stderr and b"ulimit -l" in r.stderr), r.stderr)

# ---- large batches: the weights of the CPU are copied for them, or not ----
long = ("--raw", "-p", "Once upon a time there was a fox. " * 8, "-n", "4", "--temp", "0", "--stats", "--sim", "1", "-ngl", "0")
copies = lambda r: int(re.search(rb"^copies (\d+)", r.stderr, re.M)[1])
with_copies, without = run(*long), run(*long, "--no-op-offload")
check("op offload", with_copies.stdout == without.stdout and copies(with_copies) > 10 and copies(without) == 0, with_copies.stderr, without.stderr)

# ---- -ngl auto: what fits ----
def layers(*args):
    j = json.loads(run("plan", "--json", *args).stdout)
    check(f"fits with a margin {args}", all(sum(v for k, v in d.items() if k.endswith("_bytes") and k != "limit_bytes") <= 0.951 * d["limit_bytes"]
                                            for d in j["devices"] if d["name"] != "CPU"), j["devices"])
    return len(j["layers"].get("SIM0", []))


one = json.loads(run("plan", "--json", "--sim", "7MiB,7MiB").stdout)
check("the second device has as many as one alone", len(one["layers"]["SIM1"]) == layers("--sim", "7MiB") and len(one["layers"]["SIM0"]) >= 1, one["layers"])
got = [layers("--sim", f"{kib}KiB") for kib in range(1000, 11000, 250)]
check("more memory, more layers", got == sorted(got) and set(got) == set(range(N_LAYER + 2)), got)
for size, words in (("16GiB", b"all 5 layers go to SIM0"), ("7MiB", b"2 of 5 layers fit into SIM0"), ("1MiB", b"0 of 5 layers fit into SIM0")):
    for flag in ([], ["--fit"], ["-ngl", "auto"]):
        r = run(*ASK, "--sim", size, *flag)
        check(f"said and done {size} {flag}", words in r.stderr and r.stdout == want, r.stderr)
rows = json.loads(run("bench", "--sim", "2", "-ngl", "3", "-ot", "ffn_up=CPU", "-p", "8", "-n", "0", "-r", "1", "-o", "json").stdout)
check("bench says what it runs on", [(r["backends"], r["n_gpu_layers"], r["tensor_buft_overrides"]) for r in rows] == [("SIM0,SIM1,CPU", 3, "ffn_up=CPU")], rows)
check_ok("bench fits too", run("bench", "--sim", "4MiB", "-p", "64", "-n", "4", "-r", "1"))
check_error("--fit and a number", run(*ASK, "--sim", "1", "--fit", "-ngl", "3"), 2, "--fit", "-ngl 3")

# ---- too little memory, at each stage ----
for size in ("1MiB", "3MiB", "4600KiB", "6MiB", "8500KiB"):
    check_error(f"a device of {size}", run(*ASK, "--sim", size, "-ngl", "all"), 4, "SIM0", "not enough memory", "try")
check_ok("a device that is large enough", run(*ASK, "--sim", "64MiB"))

# ---- experts ----
moe = os.path.join(source, "..", "shared", "oracles", "archs", "qwen3moe-moe.gguf")
if os.path.exists(moe):
    base = ("logits", "-m", moe, "--ids", "1,5,9,60,3,3,77,12")
    ref = run(*base)
    check("logits of a mixture of experts", ref.returncode == 0 and len(ref.stdout) > 100, ref.stderr)
    for args in (["-cmoe"], ["-sm", "row"], ["-ncmoe", "1"], ["-ngl", "1"], ["-ot", "exps=SIM1"], ["-nkvo"], ["-ub", "3"]):
        r = run(*base, "--sim", "2", *args)
        check(f"experts {args}", r.stdout == ref.stdout and r.returncode == 0, r.stderr)
    # auto: experts go before layers do
    said = [run("plan", "-m", moe, "--sim", f"{kib}KiB").stderr.decode() for kib in range(400, 2300, 25)]
    said = [re.search(r"-ngl auto: (.*)", s)[1] for s in said]
    all_with = [i for i, s in enumerate(said) if s.startswith("all 3") and "experts" not in s]
    all_less = [i for i, s in enumerate(said) if s.startswith("all 3") and "experts" in s]
    some = [i for i, s in enumerate(said) if " of 3 layers fit" in s]
    check("experts before layers", some and all_less and all_with and max(some) < min(all_less) < max(all_less) < min(all_with), said)
    # enough tokens for the accelerators to want the products: experts that nobody asks for are not copied
    long = (*base[:-1], ",".join(str(i * 7 % 100) for i in range(40)))
    ref = run(*long)
    for args in (["-cmoe"], ["-cmoe", "--slots", "2", "-ub", "33"], ["-ot", "exps=CPU"]):
        r = run(*long, "--sim", "2", *args, "--stats")
        stats = dict(re.findall(r"^(\w+) (\d+)$", r.stderr.decode(), re.M))
        check(f"experts copied {args}", r.stdout == ref.stdout and int(stats["copied_bytes"]) > 0, r.stderr)

# ---- many splits: 64 layers whose tensors are on three devices in turn ----
EMBD, HEAD = 32, 8
deep = gguf_file.File()
rng = random.Random(1)
for key, kind, value in (("general.architecture", gguf_file.STR, "llama"), ("llama.block_count", gguf_file.U32, 64), ("llama.context_length", gguf_file.U32, 256),
                         ("llama.embedding_length", gguf_file.U32, EMBD), ("llama.feed_forward_length", gguf_file.U32, EMBD), ("llama.attention.head_count", gguf_file.U32, EMBD // HEAD),
                         ("llama.attention.layer_norm_rms_epsilon", gguf_file.F32, 1e-5), ("llama.vocab_size", gguf_file.U32, 64), ("tokenizer.ggml.model", gguf_file.STR, "none")):
    deep.set(key, kind, value)


def put(name, *ne):
    n = math.prod(ne)
    deep.tensors[name] = (ne, 0, struct.pack(f"<{n}f", *(1.0 if len(ne) == 1 else rng.uniform(-0.2, 0.2) for _ in range(n))))


put("token_embd.weight", EMBD, 64)
put("output_norm.weight", EMBD)
for i in range(64):
    for part in ("attn_norm", "ffn_norm"):
        put(f"blk.{i}.{part}.weight", EMBD)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        put(f"blk.{i}.{part}.weight", EMBD, EMBD)
path = deep.write(os.path.join(tmp, "deep.gguf"))
base = ("logits", "-m", path, "--ids", "1,2,3,4,5,6,7,8,9", "-o", "-")
place = ["--sim", "2", "-ot", "attn_q|ffn_up|attn_norm=SIM0,attn_k|ffn_gate=SIM1_ROWS,attn_(v|output)|ffn_down|norm=CPU"]
ref, r = run(*base), run(*base, *place)
n_splits = len(json.loads(run("plan", "--json", path, *place).stdout)["splits"])
check("many splits", n_splits >= 500 and ref.returncode == 0 and r.stdout == ref.stdout, n_splits, ref.stderr, r.stderr)

# ---- every architecture ----
archs = os.path.join(source, "..", "shared", "oracles", "archs")
archs = archs if os.path.isdir(archs) else os.path.join(source, "tests", "data", "archs")
ids = ",".join(open(os.path.join(archs, "ids.txt")).read().split())
n = 0
for name in sorted(os.listdir(archs)):
    base = ("logits", "-m", os.path.join(archs, name), "--ids", ids, "-o", "-")
    ref = run(*base) if name.endswith(".gguf") else None
    if not ref or ref.returncode == 3:  # not supported
        continue
    for args in (["--sim", "2"], ["--sim", "2", "-nkvo"], ["--sim", "2", "-sm", "row"], ["--sim", "3", "-sm", "row", "-ts", "1,2,3", "-mg", "1", "-ub", "7"]):
        r = run(*base, *args)
        check(f"{name} {args}", r.returncode == 0 and r.stdout == ref.stdout, r.stderr)
    n += 1
check("there are architectures", n >= 5, n)
finish()
