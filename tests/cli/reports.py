#!/usr/bin/env python3
"""What users of such programs stumble over most, tried from outside: cut files, context limits, long inputs, interrupts,
odd paths, threads. Usage: reports.py GGRUN"""
import array
import json
import os
import pty
import random
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
from common import *

SANITIZED = subprocess.run(["grep", "-q", "__asan_init", ggrun]).returncode == 0
SOON = 15 if SANITIZED else 5  # seconds within which an interrupt has to stop everything: one, and more for a busy machine
good = open(tiny, "rb").read()
ONE = ["--temp", "0", "-t", "1"]
STORY = "Once upon a time"


def write(name, data):
    p = os.path.join(tmp, name)
    with open(p, "wb") as f:
        f.write(data)
    return p


def replaced(name, *edits):
    """A copy of the story model with byte strings replaced by others of the same length, wherever they stand."""
    data = good
    for old, new in edits:
        assert old in data and len(old) == len(new), old
        data = data.replace(old, new)
    return write(name, data)


def with_u32(name, key, value):
    data = bytearray(good)
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    assert struct.unpack_from("<I", data, at)[0] == 4  # GGUF_U32
    struct.pack_into("<I", data, at + 4, value)
    return write(name, bytes(data))


def verbs(model):
    """Each command that opens a file, and run in both ways of loading."""
    return [["-m", model, "-p", "a", "-n", "1"], ["-m", model, "-p", "a", "-n", "1", "--no-mmap"], ["info", model], ["info", model, "--check"],
            ["tokenize", "-m", model, "a"], ["logits", "-m", model, "--ids", "1", "--json"]]


def same_error(what, model, code, *words):
    """Every command refuses the file with the same line; bench has it in its row."""
    lines = set()
    for args in verbs(model):
        r = run(*args)
        check_error(f"{what}: {args[:1]}", r, code, *words)
        lines.update(messages(r))
    check(f"{what}: the same line everywhere", len(lines) == 1, lines)
    r = run("bench", "-m", model, "-p", "1", "-n", "0", "-r", "1", "-o", "json")
    rows = json.loads(r.stdout)
    check(f"{what}: bench", r.returncode == code and all(w in rows[0]["error"] for w in words), r)


# ---- files that are cut off, or whose tensors reach outside of them ----
def tensors(data):
    """name -> (offset of ne[0], number of dimensions, offset of the type); the offset in the data follows the type."""
    out, at = {}, data.index(struct.pack("<Q", 17) + b"token_embd.weight")
    while data[at + 8:at + 13] in (b"token", b"blk.0", b"blk.1", b"blk.2", b"blk.3", b"outpu"):
        n = struct.unpack_from("<Q", data, at)[0]
        n_dims = struct.unpack_from("<I", data, at + 8 + n)[0]
        out[data[at + 8:at + 8 + n].decode()] = (at + 12 + n, n_dims, at + 12 + n + 8 * n_dims)
        at += 12 + n + 8 * n_dims + 12
    return out


table = tensors(good)
check("the table of tensors", len(table) >= 30, len(table))
for n in (24, 100, len(good) // 100, len(good) - 1000, len(good) - 1):
    same_error(f"cut at {n}", write("cut.gguf", good[:n]), 3, "cut.gguf", "cut off")
r = run("-m", os.path.join(tmp, "cut.gguf"), "-p", "a")
check("how much is missing", str(len(good) - 1) in messages(r)[0] and "tensor '" in messages(r)[0] and "1 B are missing" in messages(r)[0], r)

last = max(table, key=lambda t: struct.unpack_from("<Q", good, table[t][2] + 4)[0])
ne_at, n_dims, type_at = table[last]
offset = struct.unpack_from("<Q", good, type_at + 4)[0]
rows_at = ne_at + 8 * (n_dims - 1)
for what, at, fmt, value, words in [
    ("more rows than data", rows_at, "<Q", 2 * struct.unpack_from("<Q", good, rows_at)[0], [last]),
    ("offset past the end", type_at + 4, "<Q", (len(good) + 31) // 32 * 32, [last]),
    ("on top of another tensor", type_at + 4, "<Q", 0, [last, "overlap"]),
    ("unaligned", type_at + 4, "<Q", offset - 1, [last, "alignment"]),
    ("a type of old files", type_at, "<I", 31, [last, "31", "quantize"]),
    ("a type of new files", type_at, "<I", 200, [last, "200", "quantize"]),
]:
    data = bytearray(good)
    struct.pack_into(fmt, data, at, value)
    same_error(what, write("outside.gguf", bytes(data)), 3, *words)

# Sizes that would divide by zero or do not go together: key, value and what is allowed.
for key, value, words in [
    (b"llama.attention.head_count", 0, ["1 to"]), (b"llama.attention.head_count_kv", 0, ["1 to"]),
    (b"llama.attention.head_count_kv", 5, ["divisor"]), (b"llama.embedding_length", 0, ["1 to"]),
    (b"llama.block_count", 0, ["1 to"]), (b"llama.feed_forward_length", 0, ["1 to"]), (b"llama.rope.dimension_count", 0, ["2 to"]),
    (b"llama.rope.dimension_count", 7, ["even"]), (b"llama.context_length", 0, ["1 to"]), (b"llama.vocab_size", 0, ["1 to"]),
]:
    name = with_u32("key.gguf", key, value)
    check_error(f"{key} = {value}", run("-m", name, "-p", "a"), 3, key.decode(), str(value), *words)

name = with_u32("key.gguf", b"llama.embedding_length", 257)
check_error("heads of no whole size", run("-m", name, "-p", "a"), 3, "llama.attention.head_count", "8", "embedding_length 257", "divisor")

# ---- texts: exact bytes there and back, without a BOS token too ----
rng = random.Random(11)
alphabet = [" ", "  ", "\t", "\n", "a", "the ", "Z", "9", ".", "\u00e4", "\u6f22", "\U0001f600", "\u0301", "\u200d", "\u2581", "\u3000"]
for i in range(40):
    text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 20))).encode()
    ids = run("tokenize", "--no-bos", "--no-special", "--json", stdin=text).stdout
    back = run("tokenize", "--decode", "--no-bos", "--no-special", stdin=ids).stdout
    check("round trip without BOS", back == text, text, ids, back)

# 3 MB through each way in; nothing is lost.
big = STORY.encode() + b", a fox lived in the grove.\n" * 110000
big_path = write("big.txt", big)
want = run("tokenize", "--json", "-f", big_path).stdout
check("3 MB", len(want) > 10**6 and want.startswith(b"[1,") and want.endswith(b"]\n"), want[:50])
fifo = os.path.join(tmp, "fifo")
os.mkfifo(fifo)
feeder = threading.Thread(target=lambda: open(fifo, "wb").write(big))
feeder.start()
check("3 MB through a FIFO", run("tokenize", "--json", "-f", fifo).stdout == want)
feeder.join()
for args in (["-f", "-"], ["-f", "/dev/stdin"], ["-"], []):
    check(f"3 MB through {args}", run("tokenize", "--json", *args, stdin=big).stdout == want)
check("3 MB there and back", run("tokenize", "--decode", stdin=want).stdout == big)

# A text that does not fit is refused with both numbers, whatever the command and the way in; it is never cut.
key_text = b"KEY=K4\n" + b"\n".join(b"%d" % i for i in range(1, 5001)) + b"\nrepeat the first line"
n_tokens = len(json.loads(run("tokenize", "--json", stdin=key_text).stdout))
key_path = write("key.txt", key_text)
for args, stdin in ((["-m", tiny, "-c", "512"], key_text), (["-m", tiny, "-c", "512", "-f", key_path], b""), (["-"], key_text), ([], key_text),
                    (["--chat", "-f", key_path], b""), (["-m", tiny, "-c", "512", "-b", "64", "-n", "1"], key_text),
                    (["logits", "--json", "-c", "512"], key_text)):
    r = run(*args, stdin=stdin)
    check_error(f"too long: {args}", r, 2, "512")
    found = [int(w) for w in messages(r)[0].replace(",", "").split() if w.isdigit()] if messages(r) else [0]
    check(f"too long: {args}: tokens", n_tokens <= max(found) <= n_tokens + 20, n_tokens, found)

# ---- paths of any bytes: texts and outputs ----
odd = os.path.join(tmp.encode(), b"\xd1\x82 a\nb\xff")
os.mkdir(odd)
for name in (b"x\xfe.txt", b"-n", b"\x1b[31m", b"a'b\"c"):
    p = os.path.join(odd, name)
    with open(p, "wb") as f:
        f.write(STORY.encode())
    check(f"text path {name}", run("tokenize", "-f", p, "--json").stdout == run("tokenize", STORY, "--json").stdout)
    os.unlink(p)
    r = run("tokenize", "-q", "-f", p)
    check_error(f"missing text path {name}", r, 1, "cannot open")
    check(f"missing text path {name}: escaped", b"\x1b" not in r.stderr and r.stderr.count(b"\n") == 1 and b"\xff" not in r.stderr, r.stderr)
    check_ok(f"output path {name}", run("logits", "--ids", "1", "-o", p))
    check(f"output path {name}: size", os.path.getsize(p) == 4096)

# ---- the context: default, limit, batches ----
r = run(STORY, "--raw", "--ignore-eos", "-n", "3000", *ONE)
check("the default is the model's", r.returncode == 5 and "512" in messages(r)[0] and len(r.stdout) > 500, r)
wide = with_u32("wide.gguf", b"llama.context_length", 6000)
NOTE = b"ggrun: the context holds 4096 of the model's 6000 tokens; -c N for another, -c 0 for all\n"
for args, n, note in (([], 4096, True), (["-q"], 4096, False), (["-c", "0"], 6000, False), (["-c", "5000"], 5000, False)):
    r = run("-m", wide, "-p", STORY, "-n", "1", "--stats", *args, *ONE)
    check(f"context without and with {args}", r.returncode == 0 and b"context_tokens %d\n" % n in r.stderr
          and (NOTE in r.stderr) == note, r)
check("no note where the model's context is not cut", b"context" not in run("-p", STORY, "-n", "1", *ONE).stderr)
r = run("-m", wide, "-p", STORY, "-c", "24", "--ignore-eos", *ONE)
check("the limit says what the model allows", r.returncode == 5 and "-c 6000" in messages(r)[0], r)
huge = with_u32("huge.gguf", b"llama.context_length", 2000000000)
check_error("all of a context that no machine holds", run("-m", huge, "-p", STORY, "-c", "0", *ONE), 4, "KV cache", "2000000000", "needs", "-c")

# Context shift against a plain account of it: which tokens are there, and what they give.
def ids_of(text):
    return json.loads(run("tokenize", "--json", "-p", text).stdout)

def greedy(ids):
    out = os.path.join(tmp, "row.f32")
    r = run("logits", "--ids", ",".join(map(str, ids)), "-o", out, "-t", "1")
    row = array.array("f", open(out, "rb").read())[-1024:]
    return max(range(1024), key=lambda i: (row[i], -i)) if r.returncode == 0 else None

def shifted(n_ctx, n_keep, n):
    ids = ids_of("The fox and the owl")
    keep = max(1, min(len(ids), n_keep) if n_keep >= 0 else len(ids))  # BOS stays
    told = [greedy(ids)]
    while len(told) < n:
        if len(ids) == n_ctx:
            del ids[keep:keep + (n_ctx - keep + 1) // 2]
        ids.append(told[-1])
        told.append(greedy(ids))
    return run("tokenize", "--decode", "--ids", ",".join(map(str, told))).stdout

for keep in (0, 3, -1, 100):
    r = run("--raw", "-p", "The fox and the owl", "-c", "20", "--context-shift", "--keep", str(keep), "-n", "40", "--ignore-eos",
            "--stats", *ONE)
    check(f"context shift, --keep {keep}", r.returncode == 0 and re.search(rb"context_shifts [1-9]", r.stderr)
          and shifted(20, keep, 40).strip() == r.stdout.strip(), r, shifted(20, keep, 40))
r = run("--raw", "-p", STORY, "-c", "64", "--context-shift", "--ignore-eos", "-n", "600", "--stats", *ONE)
check("context shift goes on and on", r.returncode == 0 and b"tokens_generated 600" in r.stderr and b"regrows 0" in r.stderr, r)
n = len(ids_of(STORY))
# A prompt that is too long is cut only when asked, and then where asked.
long = "The owl said: " + "the fox had a red lantern, " * 20 + "and so they went"
ids = ids_of(long)
check_error("too long a prompt is not cut", run("--raw", "-p", long, "-c", "48", *ONE), 2, str(len(ids)), "48", "--truncate")
for where, answer, left in (("head", 8, ids[:1] + ids[-39:]), ("middle", 8, ids[:20] + ids[-20:]), ("head", 40, ids[:1] + ids[-23:]),
                       ("middle", -1, ids[:18] + ids[-18:])):
    r = run("--raw", "-p", long, "-c", "48", "--truncate", where, "-n", str(answer), "--ignore-eos", "--stats", *ONE)
    note = b"ggrun: the prompt of %d tokens does not fit: %d are dropped from its %s, %d stay\n" % (len(ids), len(ids) - len(left), where.encode(), len(left))
    first = run("tokenize", "--decode", "--ids", str(greedy(left))).stdout.decode().strip()
    check(f"--truncate {where} -n {answer}", r.returncode == (0 if answer == 8 else 5) and note in r.stderr
          and b"tokens_truncated %d\n" % (len(ids) - len(left)) in r.stderr and r.stdout.decode().strip().startswith(first), r, first)
check_error("--keep that leaves no room", run("--raw", "-p", STORY, "-c", str(n), "--context-shift", "--keep", "-1"), 2, "--keep", str(n))
check_error("--keep alone", run("-p", STORY, "--keep", "4"), 2, "--keep", "--context-shift")
check_error("too long a prompt is not shifted", run("--raw", "-p", STORY * 9, "-c", "24", "--context-shift"), 2, "24", "-c")
check_error("no tokens in a batch", run("-p", "a", "-b", "0"), 2, "-b")

words = [int(x) for x in run("tokenize", "--json", "-p", "the fox had a red lantern " * 20).stdout.decode().strip("[]\n").split(",")]
ctx = 48
text = {n: run("tokenize", "--decode", "--ids", ",".join(map(str, words[:n]))).stdout.decode() for n in (ctx - 1, ctx, ctx + 1)}
for n, t in text.items():
    if len(json.loads(run("tokenize", "--json", "-p", t).stdout)) != n:
        check(f"{n} tokens", False, t)
        continue
    outs = set()
    for cut in ([], ["-b", "8", "-ub", "32"], ["-ub", "1"], ["-b", "1"], ["-ub", "7"], ["-b", "100000", "-ub", "100000"]):
        r = run("-p", t, "-c", str(ctx), "--ignore-eos", *ONE, *cut)
        if n > ctx:
            check_error(f"{n} of {ctx} tokens {cut}", r, 2, str(n), str(ctx))
        else:
            check(f"{n} of {ctx} tokens {cut}", r.returncode == 5 and r.stdout, r)
        outs.add(r.stdout)
    check(f"{n} of {ctx} tokens: the same however it is cut", len(outs) == 1, outs)

# A context that does not fit into memory: device, bytes, what to change.
if not SANITIZED:
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    r = run("-p", STORY, "-n", "1", "-c", "1000000000", *ONE, preexec_fn=limited)
    check_error("a context that does not fit", r, 4, "CPU", "KV cache", "1000000000", "-c", "iB")
r = run("-p", STORY, "-n", "1", "-c", "2000000000", "-ctk", "f32", "-ctv", "f32", *ONE)
check_error("a context that no machine holds", r, 4, "KV cache", "-c")

# ---- end tokens ----
ENDS = [(b"<|im_end|>", b"<|xx_xxx|>"), (b"</s>", b"<//>")]
no_end = replaced("no-end.gguf", *ENDS, (b"tokenizer.ggml.eos_token_id", b"tokenizer.ggml.xos_token_id"),
                  (b"tokenizer.ggml.eot_token_id", b"tokenizer.ggml.xot_token_id"))
check("nothing ends a text", json.loads(run("info", "--json", no_end).stdout)["vocabulary"]["stops_at"] == [])
r = run("-m", no_end, "-p", STORY, "-n", "300", "--temp", "0", "--stats", "-t", "1")
check("without end tokens it runs to -n", r.returncode == 0 and b"tokens_generated 300\n" in r.stderr, r)
other = with_u32("other-end.gguf", b"tokenizer.ggml.eos_token_id", 696)
stops = json.loads(run("info", "--json", other).stdout)["vocabulary"]["stops_at"]
check("the file's end token and the end of turn", 696 in stops and 4 in stops, stops)
check("both stop", run("-m", other, "--chat", "Who are you?", *ONE).stdout == run("-m", tiny, "--chat", "Who are you?", *ONE).stdout)

# ---- one answer, then the end: with a terminal as stdin, and with streams that are one and not the other ----
def with_terminal(args, stdout=None, stderr=None):
    """stdin is a terminal, and stdout and stderr are unless given; what came through the terminal, and the exit code."""
    main, sub = pty.openpty()
    p = subprocess.Popen([ggrun, *args], stdin=sub, stdout=stdout or sub, stderr=stderr or sub, env={**os.environ, "TERM": "xterm"})
    os.close(sub)
    data, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([main], [], [], 0.2)[0]:
            try:
                data += os.read(main, 65536)
            except OSError:
                break
        elif p.poll() is not None:
            break
    os.close(main)
    if p.poll() is None and time.monotonic() >= end:
        p.kill()
    return p.wait(), data


answer = run("-m", tiny, "-p", STORY, "-n", "8", *ONE).stdout
slow = ["-m", tiny, "-f", write("slow.txt", b"The brave mouse lived in the valley. " * 50), "-c", "2000", "-n", "1", "--isa", "scalar", *ONE]
if have_terminal():
    code, data = with_terminal(["-m", tiny, "-p", STORY, "-n", "8", *ONE])
    check("-p at a terminal", code == 0 and answer.rstrip(b"\n") in data.replace(b"\r\n", b"\n"), code, data)
    for which in ("stdout", "stderr"):
        with open(os.path.join(tmp, which), "w+b") as f:
            code, data = with_terminal(slow, **{which: f})
            f.seek(0)
            content = f.read()
        check(f"{which} alone is a file", code == 0 and b"\x1b" not in content and b"\r" not in content and b"#" not in content, code, content)
r, w = os.pipe()
os.close(w)
p = subprocess.run([ggrun, "--chat"], stdin=r, capture_output=True, timeout=60)
check("a closed pipe as input", p.returncode == 0 and not p.stdout, p)


# ---- interrupts, in each phase ----
def interrupted(what, args, after, times=1):
    """SIGINT after so many seconds, or (None) when there is output; what stdout got."""
    p = subprocess.Popen([ggrun, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if after is None:
        select.select([p.stdout], [], [], 60)
    else:
        time.sleep(after)
    if p.poll() is not None:
        check(f"{what}: still running after {after} s", False, p.returncode, p.communicate()[1])
        return b""
    start = time.monotonic()
    for _ in range(times):
        p.send_signal(signal.SIGINT)
        time.sleep(0.02)
    out, err = p.communicate(timeout=60)
    took = time.monotonic() - start
    check(what, p.returncode == 130 and took < SOON and (times > 1 or err.count(b"interrupted") == 1), p.returncode, took, err)
    out.decode("utf-8")
    return out


long_prompt = ["-m", tiny, "-f", write("long.txt", b"The brave mouse lived in the valley. " * 2500), "-c", "60000", "--isa", "scalar"]
none = os.path.join(tmp, "none.f32")
interrupted("in a long prompt, one batch", long_prompt + ["-n", "1", "-b", "60000"], 0.6)
interrupted("in a long prompt, large micro-batches", long_prompt + ["-n", "1", "-ub", "2048"], 0.6)
interrupted("twice", long_prompt + ["-n", "1", "-ub", "2048"], 0.6, times=2)
interrupted("while logits are computed", ["logits", *long_prompt, "-o", none], 0.6)
check("no output file", not [f for f in os.listdir(tmp) if f.startswith("none")], os.listdir(tmp))
out = interrupted("in tokenizing", ["tokenize", "--json"] + ["-f", big_path] * 20, 0.3)
check("the lists so far are whole", not out or out.endswith(b"]\n"), out[-20:])
check("nothing of a prompt", not interrupted("in tokenizing a prompt", ["-f", write("big3.txt", big * 2)], 0.3))
for form in ("json", "jsonl"):
    out = interrupted("in a sweep", ["bench", "-p", "4", "-n", "400", "-r", "200", "-o", form, "--isa", "scalar"], None)
    rows = json.loads(out) if form == "json" else [json.loads(l) for l in out.splitlines()]
    check("rows so far are whole", rows and all("avg_ts" in x for x in rows), out)

# ---- the cores that may be used ----
if hasattr(os, "sched_setaffinity"):
    allowed = sorted(os.sched_getaffinity(0))
    for n in {1, len(allowed)}:
        r = run("info", "--json", preexec_fn=lambda: os.sched_setaffinity(0, allowed[:n]))
        found = json.loads(r.stdout)["devices"][0]["usable_cores"]
        check(f"usable cores of {n}", 1 <= found <= n and (n > 1 or found == 1), found)
        rows = json.loads(run("bench", "-p", "1", "-n", "0", "-r", "1", "-o", "json", preexec_fn=lambda: os.sched_setaffinity(0, allowed[:n])).stdout)
        check(f"default threads on {n}", rows[0]["n_threads"] == found, rows, found)
finish()
