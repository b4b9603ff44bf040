#!/usr/bin/env python3
"""info, tokenize, logits, bench: what they print, and how they fail. Usage: commands.py GGRUN"""
import array
import csv
import io
import json
import math
import os
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
from common import *

good = open(tiny, "rb").read()


def mutated(name, *edits):
    """A copy of the story model with bytes replaced (old, new) of the same length, or (offset, bytes)."""
    data = bytearray(good)
    for at, new in edits:
        if isinstance(at, bytes):
            assert data.count(at) >= 1 and len(at) == len(new), at
            at = data.index(at)
        data[at:at + len(new)] = new
    p = os.path.join(tmp, name)
    with open(p, "wb") as f:
        f.write(data)
    return p


# ---- info ----
j = json.loads(run("info", "--json", "--tensors", "--keys", "-m", tiny).stdout)
check("info", j["architecture"] == "llama" and j["supported"] and j["bytes"] == len(good) and j["hparams"]["block_count"] == 4
      and j["vocabulary"]["tokens"] == 1024 and j["vocabulary"]["stops_at"] == [2, 4] and j["chat"]["family"] == "chatml"
      and j["tensor_count"] == 38 == len(j["tensors"]) and j["keys"]["llama.context_length"] == 512
      and j["keys"]["tokenizer.ggml.tokens"]["count"] == 1024 and sum(t["tensors"] for t in j["types"]) == 38, j)
check("info sums bytes", sum(t["bytes"] for t in j["tensors"]) == j["tensor_bytes"] < j["bytes"], j["tensor_bytes"])
for args in (["info", tiny], ["info", "-m", tiny], ["info", tiny, "--no-mmap"]):
    r = run(*args, "--tensors", "--keys", "--check")
    check(f"{args}", r.returncode == 0 and b"ggrun-tiny" in r.stdout and b"<|im_end|>" in r.stdout and b"blk.3.ffn_down.weight" in r.stdout
          and b"CPU" in r.stdout and not r.stderr, r)

other = mutated("other.gguf", (struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"lxama"))
r = run("info", other, "--json")
check("unknown architecture", r.returncode == 0 and not json.loads(r.stdout)["supported"] and "error" in json.loads(r.stdout)["hparams"], r)
check_ok("unknown architecture, text", run("info", other))
check_error("unknown architecture does not run", run("-m", other, "-p", "a"), 3, "lxama", "llama")
check_ok("unknown architecture is tokenized", run("tokenize", "-m", other, "a"))

vocab_only = mutated("vocab.gguf", (8, struct.pack("<Q", 0)))
check_ok("vocabulary only: info", run("info", vocab_only))
check("vocabulary only: tokenize", run("tokenize", "-m", vocab_only, "Once upon a time", "--json").stdout == b"[1,696,789,262,453]\n")
check_error("vocabulary only: run", run("-m", vocab_only, "-p", "a"), 3, "vocabulary only")

# End tokens: another or none in the file; the end-of-turn piece is known by its name.
no_eos = mutated("no-eos.gguf", (b"tokenizer.ggml.eos_token_id", b"tokenizer.ggml.xos_token_id"),
                 (b"tokenizer.ggml.eot_token_id", b"tokenizer.ggml.xot_token_id"))
r = run("-m", no_eos, "--chat", "Who are you?", "--temp", "0", "-n", "60")
check("the end of turn is known without keys", r.returncode == 0 and b"ggrun" in r.stdout and len(r.stdout) < 150, r)

# Chat templates.
bad_template = mutated("template.gguf", (b"{% for message in messages %}", b"{% frobnicate messages     %}"))
check_error("unknown template", run("-m", bad_template, "--chat", "Who are you?"), 3, "--chat-template", "chatml")
r = run("-m", bad_template, "--chat-template", "chatml", "Who are you?", "--temp", "0")
check("a template by name", r.returncode == 0 and b"ggrun" in r.stdout, r)
check_error("no such template", run("-m", tiny, "--chat-template", "nosuch", "a"), 2, "nosuch", "chatml")
check_ok("info with an unknown template", run("info", bad_template))
check("system message", run("--system", "You are a helpful assistant.", "Who are you?", "--temp", "0").returncode == 0)

# A weight that is not a number: found, named, and never sampled from.
name = next(t for t in j["tensors"] if t["name"] == "blk.1.ffn_down.weight")
nan = mutated("nan.gguf", (name["offset"] + 34 * 7, struct.pack("<H", 0x7E00)))
check("info --check", b"blk.1.ffn_down.weight" in (r := run("info", nan, "--check")).stderr and b"block 7" in r.stderr and r.returncode == 3, r)
check_error("--check-tensors", run("-m", nan, "-p", "a", "--check-tensors"), 3, "blk.1.ffn_down.weight")
check_error("a run stops at NaN", run("-m", nan, "-p", "Once", "-n", "4", "--temp", "0"), 3, "finite", "-1")
check_error("logits stop at NaN", run("logits", "-m", nan, "-p", "Once", "--json"), 3, "finite", "-1")

# ---- tokenize ----
check("tokenize", run("tokenize", "Once upon a time", "--json").stdout == b"[1,696,789,262,453]\n")
check("--no-bos", run("tokenize", "Once", "--json", "--no-bos").stdout == b"[696]\n")
check("one BOS", run("tokenize", "<s>Once", "--json").stdout.startswith(b"[1,696") is True, run("tokenize", "<s>Once", "--json").stdout)
check("special", run("tokenize", "<|im_end|>", "--json", "--no-bos").stdout == b"[4]\n")
check("no special", len(json.loads(run("tokenize", "<|im_end|>", "--json", "--no-bos", "--no-special").stdout)) > 3)
check("table", run("tokenize", "Once", "--no-bos").stdout.decode() == "696\t\u2581Once\n")
for ids in ("1,696,789,262,453", "[1, 696, 789, 262, 453]", "[1,696]\n[789,262,453]", "1 696 789\n262\t453 "):
    check(f"decode {ids}", run("tokenize", "--decode", "--ids", ids).stdout == b"Once upon a time", run("tokenize", "--decode", "--ids", ids))
for ids in ("1,,2", "a", "1,", "[1", "1]", "[[1]]", "-1", "1.5", "99999999999", "1024"):
    check_error(f"decode {ids}", run("tokenize", "--decode", "--ids", ids), 2)
check_error("--ids alone", run("tokenize", "--ids", "1"), 2, "--decode")

# ---- logits ----
IDS = "1,696,789,262,453"
out = os.path.join(tmp, "out.f32")
r = run("logits", "--ids", IDS, "-o", out)
raw = array.array("f", open(out, "rb").read())
check("raw logits", r.returncode == 0 and not r.stdout and len(raw) == 5 * 1024, r)
check("-o -", run("logits", "--ids", IDS, "-o", "-").stdout == raw.tobytes())
check("-o /dev/stdout", run("logits", "--ids", IDS, "-o", "/dev/stdout").stdout == raw.tobytes())
check("text gives the same", run("logits", "-p", "Once upon a time", "-o", "-").stdout == raw.tobytes())
check("batches give the same", all(run("logits", "--ids", IDS, "-o", "-", *a).stdout == raw.tobytes()
                                   for a in (["-ub", "1"], ["-ub", "2"], ["-b", "3"], ["-t", "1"], ["--no-reuse"], ["--check-reuse"])))
rows = json.loads(run("logits", "--ids", IDS, "--json", "--top", "48").stdout)
for i, row in enumerate(rows):
    x = raw[i * 1024:(i + 1) * 1024]
    norm = math.log(math.fsum(math.exp(v) for v in x))
    order = sorted(range(1024), key=lambda k: (-x[k], k))[:48]
    check(f"top of {i}", row["pos"] == i and row["id"] == int(IDS.split(",")[i]) and row["top_ids"] == order, row)
    check(f"logprobs of {i}", all(abs(p - (x[k] - norm)) < 1e-6 for p, k in zip(row["top_logprobs"], order)), row)
check("table of logits", len(run("logits", "--ids", "1,2", "--top", "3").stdout.splitlines()) == 6)
check_error("id outside", run("logits", "--ids", "1,1024", "--json"), 2, "1024")
check_error("no ids", run("logits", "--ids", "", "--json"), 2, "no tokens")
check_error("too many ids", run("logits", "--ids", ",".join(["5"] * 513), "--json"), 2, "513", "512")
check_error("both to stdout", run("logits", "--ids", "1", "--json", "-o", "-"), 2, "stdout")
# A failure leaves the old file as it was, and nothing beside it.
before = sorted(os.listdir(tmp))
check_error("failure with -o", run("logits", "-m", nan, "-p", "Once", "-o", out), 3)
check("the old file stays", open(out, "rb").read() == raw.tobytes() and sorted(os.listdir(tmp)) == before, os.listdir(tmp))
check_error("-o into nothing", run("logits", "--ids", "1", "-o", os.path.join(tmp, "no", "x")), 1, "no/x")
check_error("-o /dev/full", run("logits", "--ids", "1", "-o", "/dev/full"), 1, "/dev/full")
link = os.path.join(tmp, "link")
os.symlink(out, link)
run("logits", "--ids", "1", "-o", link)
check("a link stays a link", os.path.islink(link) and os.path.getsize(out) == 4096)

# A node's values: the last node is the logits.
nodes = [l.split() for l in run("logits", "--ids", IDS, "--json", "--sched-debug=2").stderr.decode().splitlines()]
last = [w[1] for w in nodes if w and w[0].isdigit()][-1]
dump = os.path.join(tmp, "dump.txt")
check_ok("--dump-node", run("logits", "--ids", IDS, "--json", "--dump-node", last, "--dump-file", dump))
lines = open(dump).read().splitlines()
check("dumped header", lines[0] == f"node {last} f32 [1024, 5, 1, 1]", lines[0])
check("dumped values", array.array("f", (float(v) for l in lines[1:] for v in l.split())).tobytes() == raw.tobytes())
r = run("-p", "Once", "-n", "2", "--temp", "0", "--dump-node", last)
check("dump to stderr", r.returncode == 0 and r.stderr.count(b"node " + last.encode()) == 2 and len(r.stderr.split()) > 2048, r.stderr[:200])
check_error("no such node", run("logits", "--ids", "1", "--json", "--dump-node", "nosuch"), 2, "nosuch")

# ---- bench ----
BENCH = ["bench", "-r", "2", "-t", "1"]
FIELDS = {"cpu_info", "gpu_info", "backends", "model_filename", "model_type", "model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads",
          "type_k", "type_v", "flash_attn", "n_gpu_layers", "use_mmap", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts",
          "samples_ns", "samples_ts"}
rows = json.loads(run(*BENCH, "-p", "8,4", "-n", "2", "-d", "0,5", "-o", "json").stdout)
check("combinations", [(x["n_prompt"], x["n_gen"], x["n_depth"]) for x in rows] ==
      [(8, 0, 0), (4, 0, 0), (0, 2, 0), (8, 0, 5), (4, 0, 5), (0, 2, 5)], rows)
for x in rows:
    mean = sum(x["samples_ts"]) / 2
    check("fields", FIELDS <= set(x) and len(x["samples_ns"]) == 2 and abs(mean - x["avg_ts"]) < 1e-6 * mean
          and all(abs((x["n_prompt"] + x["n_gen"]) * 1e9 / n - t) < 1e-6 * t for n, t in zip(x["samples_ns"], x["samples_ts"])), x)
check("first token and percentiles", "ttft_ns" in rows[0] and rows[2]["token_p50_ns"] <= rows[2]["token_p95_ns"], rows[2])
r = run(*BENCH, "-m", f"{tiny},nosuch.gguf,{nan}", "-p", "4", "-n", "1", "-o", "json")
rows = json.loads(r.stdout)
check("a failing file does not end the sweep", r.returncode == 1 and [("error" in x) for x in rows] == [False, False, True, True, True]
      and "nosuch.gguf" in rows[2]["error"] and len(messages(r)) == 1, r)
r = run(*BENCH, "-p", "4", "-n", "1", "-o", "jsonl")
check("jsonl", [json.loads(l)["n_gen"] for l in r.stdout.splitlines()] == [0, 1], r)
r = run(*BENCH, "-p", "4", "-n", "1", "-o", "csv")
rows = list(csv.DictReader(io.StringIO(r.stdout.decode())))
check("csv", [x["n_prompt"] for x in rows] == ["4", "0"] and float(rows[0]["avg_ts"]) > 0, r)
lines = run(*BENCH, "-p", "4", "-n", "0").stdout.decode().splitlines()
check("md, and -n 0 drops a test", len(lines) == 3 and "pp4" in lines[2] and len({l.count("|") for l in lines}) == 1, lines)
check("-p 0 drops a test", b"pp" not in run(*BENCH, "-p", "0", "-n", "2").stdout)
finish()
