#!/usr/bin/env python3
"""ggrun plan: what it says is what a run then asks for, byte for byte. Usage: plan.py GGRUN"""
import glob
import json
import os
import re
import struct

import gguf_file
from common import *

schema = json.load(open(os.path.join(source, "docs", "plan.schema.json")))
TYPES = {"object": dict, "array": list, "string": str, "integer": int}


def validate(v, s, where="plan"):
    """Complaints of the schema, by the few words of JSON Schema that it uses."""
    assert not set(s) - {"$schema", "title", "description", "type", "required", "additionalProperties", "properties", "items",
                         "minimum", "minItems"}, s
    if not isinstance(v, TYPES[s["type"]]) or isinstance(v, bool):
        return [f"{where} is no {s['type']}"]
    bad = []
    if isinstance(v, dict):
        bad += [f"{where} lacks {k}" for k in s.get("required", []) if k not in v]
        for k, x in v.items():
            rule = s.get("properties", {}).get(k, s.get("additionalProperties", {}))
            bad += validate(x, rule, f"{where}.{k}") if rule else [f"{where} has {k}"]
    elif isinstance(v, list):
        bad += [f"{where} is too short"] if len(v) < s.get("minItems", 0) else []
        for i, x in enumerate(v):
            bad += validate(x, s["items"], f"{where}[{i}]")
    elif isinstance(v, int) and v < s.get("minimum", v):
        bad.append(f"{where} is {v}")
    return bad


def plan(*args):
    r = run("plan", "--json", *args)
    check(f"plan {args}", r.returncode == 0, r.returncode, r.stderr)
    return json.loads(r.stdout)


check("the validator sees faults", len(validate({"n_layer": 0, "x": 1, "splits": []}, schema)) > 3)

# ---- every model: the schema holds, and twice the same bytes ----
oracles = os.path.join(source, "..", "shared", "oracles", "archs")
models = sorted(glob.glob(os.path.join(source, "tests", "data", "archs", "*.gguf")) + glob.glob(os.path.join(oracles, "*.gguf")))
n_good = 0
for m in models:
    args = ("plan", "--json", "--nodes", "--sim", "2", m)
    r, again = run(*args), run(*args)
    if r.returncode == 3 and ("qwen2vl" in m or b"is not supported" in r.stderr):  # that file lacks a key
        continue
    check(f"the same bytes twice: {m}", r.returncode == 0 and r.stdout == again.stdout, r.stderr)
    if r.returncode:
        continue
    j = json.loads(r.stdout)
    bad = validate(j, schema)
    check(f"the schema: {m}", not bad, bad)
    check(f"splits hold all nodes: {m}", sum(s["n_nodes"] for s in j["splits"]) == len(j["nodes"]) == j["graph"]["n_nodes"])
    check(f"every node has a cause: {m}", sum(j["causes"].values()) == len(j["nodes"]) and all(n["cause"] != "-" for n in j["nodes"]))
    n_good += 1
check("there are models", n_good >= (80 if os.path.isdir(oracles) else 5), n_good)

# ---- what is planned is what a run asks for ----
TEXT = "Once upon a time there was a small fox. " * 6
SUMMED = ("weights_bytes", "kv_bytes", "compute_bytes", "staging_bytes", "output_bytes", "scratch_bytes")
CASES = [["--sim", "1", "-ngl", str(n)] for n in range(6)] + [
    [], ["--sim", "2"], ["--sim", "3", "-ts", "1,2,3"], ["--sim", "2", "-nkvo"], ["--sim", "1", "-ot", "ffn_.*=CPU"],
    ["--sim", "2", "-ot", "attn.*=SIM1_ROWS", "-ngl", "0"], ["--sim", "1", "-ub", "8"], ["--sim", "1", "-ub", "1"], ["--sim", "2", "-c", "256"],
    ["-c", "4096"], ["--sim", "1", "-fa", "off"], ["-fa", "off", "-ub", "64"], ["-t", "1"], ["--sim", "1", "-ctk", "q8_0", "-ctv", "q8_0"],
    ["--sim", "2", "-sm", "none", "-mg", "1"], ["--sim", "2", "--slots", "4", "-ub", "16"], ["--sim", "2", "--blas", "on", "-ngl", "2"], ["-np", "3", "-c", "1024"], ["-np", "3", "-kvu", "--sim", "2"], ["--sim", "3", "-sm", "row"], ["--sim", "2", "-sm", "row", "-ts", "1,4", "-ngl", "3"], ["--sim", "1", "-ctk", "f32", "-ctv", "bf16", "-b", "100"]]
for args in CASES:
    j = plan(*args)
    r = run("--raw", "-p", TEXT, "-n", "32", "--temp", "0", "--stats", *args)
    stats = dict(l.split(" ", 1) for l in r.stderr.decode().splitlines() if re.fullmatch(r"\w+ [\d.]+", l))
    for d in j["devices"]:
        if d["name"] == "BLAS":  # works in the CPU's memory
            continue
        want = sum(x[k] for x in j["devices"] if x is d or d["name"] == "CPU" and x["name"] == "BLAS" for k in SUMMED)
        check(f"bytes of {d['name']} {args}", stats.get(d["name"].lower() + "_used_bytes") == str(want), want, stats)
    check(f"no growth {args}", stats.get("regrows") == "0", stats)
    check(f"all weights are somewhere {args}", sum(d["mapped_bytes"] + d["weights_bytes"] for d in j["devices"]) >= int(stats["weights_bytes"]), j["devices"])

# ---- the same splits as the live plan ----
for args in (["--sim", "2"], ["--sim", "1", "-ngl", "2"], ["--sim", "1", "-ot", "ffn_.*=CPU"], []):
    j = plan(*args)
    r = run("-p", "Hi", "-n", "4", "--temp", "0", "--sched-debug", *args)
    live = r.stderr.decode().split("split 0: ")[-1]
    lines = [l for l in ("split 0: " + live).splitlines() if re.match(r"split \d+: ", l)]
    got = [(m[1], int(m[3]) - int(m[2]) + 1, re.findall(r"(?:copies in |, )([^ ,]+) \(\d", l))
           for l in lines for m in [re.match(r"split \d+: (\w+), nodes (\d+)\.\.(\d+)", l)]]
    check(f"live splits {args}", got == [(s["device"], s["n_nodes"], [i["name"] for i in s["inputs"]]) for s in j["splits"]], got, j["splits"])
    same = run("plan", *args).stdout.decode().splitlines()
    check(f"the text shows the same {args}", [l for l in same if l.startswith("split ")] == lines, same, lines)

# ---- layers ----
ranges = [plan("--sim", "1", "-ngl", str(n)) for n in range(7)]
check("layers on the accelerator", [len(j["layers"].get("SIM0", [])) for j in ranges] == [0, 1, 2, 3, 4, 5, 5], [j["layers"] for j in ranges])
moved = [j["devices"][0]["weights_bytes"] for j in ranges]
check("more layers, more bytes", moved == sorted(moved) and len(set(moved)) == 6, moved)
check("all on one, asked in two ways", run("plan", "--json", "--sim", "2", "-sm", "none", "-mg", "0").stdout
      == run("plan", "--json", "--sim", "2", "-ts", "1,0").stdout)

j = plan("--sim", "2", "-sm", "row", "-ts", "3,1")
share = [d["weights_bytes"] for d in j["devices"][:2]]
check("rows are shared", 0.6 < share[0] / sum(share) < 0.9 and list(j["layers"]) == ["SIM0"], j["devices"], j["layers"])

# ---- other forms ----
dot = run("plan", "--dot", "--sim", "2").stdout.decode()
check("a picture", dot.startswith("digraph plan {") and dot.count(" -> s") > 4 and dot.rstrip().endswith("}"), dot)
nodes = [l for l in run("plan", "--nodes", "--sim", "2").stdout.decode().splitlines() if re.match(r"  \d+ ", l)]
check("a line per node", len(nodes) == plan("--sim", "2")["graph"]["n_nodes"] and all(re.search(r" (SIM0|SIM1|CPU) \d\.\w+ ", l) for l in nodes), nodes[:3])
j = plan("--sim", "1", "--tokens", "100", "-d", "300")
check("another graph", j["graph"] == {"n_tokens": 100, "n_kv": 512, "n_nodes": j["graph"]["n_nodes"]}, j["graph"])

# ---- devices that are not here ----
far = run("plan", "--json", "--device-memory", "sim0=24GiB,SIM1=1.5GiB")
check("described devices", far.returncode == 0 and far.stdout.replace(b"25769803776", b"17179869184").replace(b"1610612736", b"17179869184")
      == run("plan", "--json", "--device-memory", "sim0=16GiB,sim1=16GiB", "-ts", "24,1.5").stdout, far.stderr)
check("as the simulated ones", plan("--sim", "24GiB,8GiB") == plan("--device-memory", "sim0=24GiB,sim1=8GiB"))
for args, words in (
    (["--device-memory", "gpu0=1GiB"], ["gpu0", "SIM0"]),
    (["--device-memory", "sim1=1GiB"], ["sim1", "SIM0"]),
    (["--device-memory", "sim0"], ["--device-memory", "expected"]),
    (["--device-memory", "sim0="], ["--device-memory", "expected"]),
    (["--device-memory", "=1GiB"], ["--device-memory", "expected"]),
    (["--device-memory", "sim0=x"], ["--device-memory", "expected"]),
    (["--device-memory", "sim0=0"], ["--device-memory", "expected"]),
    (["--device-memory", "sim0=1GiB,"], ["--device-memory", "expected"]),
    (["--device-memory", ""], ["--device-memory", "expected"]),
    (["--device-memory", "sim0=99999999999TiB"], ["--device-memory", "expected"]),
    (["--device-memory", "sim0=1GiB", "--sim", "1"], ["--device-memory", "--sim"]),
    (["--tokens", "513"], ["--tokens", "512"]),
    (["-d", "512"], ["-d", "512"]),
    (["-ngl", "1"], ["-ngl", "there is none"]),
):
    check_error(f"{args}", run("plan", *args), 2, *words)

# ---- too small: the plan is shown, and the exit code says that a run would fail ----
r = run("plan", "--json", "--device-memory", "sim0=2MiB", "-ngl", "all")
check("too small", r.returncode == 4 and not validate(json.loads(r.stdout), schema) and b"not enough memory on 'SIM0'" in r.stderr, r.stderr)

# ---- 400 billion parameters: a file of full length without a byte of data ----
LAYERS, EMBD, FF, VOCAB, HEADS, KV_HEADS = 126, 16384, 53248, 128256, 128, 8
big = gguf_file.File()
u32 = lambda v: (gguf_file.U32, struct.pack("<I", v))
f32 = lambda v: (gguf_file.F32, struct.pack("<f", v))
big.keys = {"general.architecture": (gguf_file.STR, gguf_file.string("llama")), "llama.block_count": u32(LAYERS), "llama.context_length": u32(131072),
            "llama.embedding_length": u32(EMBD), "llama.feed_forward_length": u32(FF), "llama.attention.head_count": u32(HEADS),
            "llama.attention.head_count_kv": u32(KV_HEADS), "llama.rope.freq_base": f32(500000), "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
            "tokenizer.ggml.model": (gguf_file.STR, gguf_file.string("none")), "llama.vocab_size": u32(VOCAB)}
table = [("token_embd.weight", (EMBD, VOCAB), 2), ("output_norm.weight", (EMBD,), 0), ("output.weight", (EMBD, VOCAB), 2)]
for i in range(LAYERS):
    kv = EMBD // HEADS * KV_HEADS
    table += [(f"blk.{i}.{n}.weight", ne, t) for n, ne, t in (
        ("attn_norm", (EMBD,), 0), ("attn_q", (EMBD, EMBD), 2), ("attn_k", (EMBD, kv), 2), ("attn_v", (EMBD, kv), 2), ("attn_output", (EMBD, EMBD), 2),
        ("ffn_norm", (EMBD,), 0), ("ffn_gate", (EMBD, FF), 2), ("ffn_up", (EMBD, FF), 2), ("ffn_down", (FF, EMBD), 2))]
path = os.path.join(tmp, "big.gguf")
n_params, n_bytes = gguf_file.write_sparse(path, big.keys, table)
check("it is that large", n_params > 400e9 and os.stat(path).st_blocks * 512 < 1 << 20, n_params, os.stat(path).st_blocks)
memory = ",".join(f"sim{i}=80GiB" for i in range(4))
j = plan(path, "--device-memory", memory, "-c", "8192")
r = run("plan", path, "-ngl", "0")
check("more than there is is said", b"warning: the weights on the CPU take 212" in r.stderr and r.returncode == 0, r.stderr)
check("its weights", sum(d["weights_bytes"] + d["mapped_bytes"] for d in j["devices"]) >= n_bytes, n_bytes, j["devices"])
check("its KV cache", sum(d["kv_bytes"] for d in j["devices"]) == 8192 * LAYERS * KV_HEADS * (EMBD // HEADS) * 2 * 2, j["devices"])
check("its layers", sum(map(len, j["layers"].values())) == LAYERS + 1 and len(j["layers"]) == 4, j["layers"])
finish()
