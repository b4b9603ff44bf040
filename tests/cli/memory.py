#!/usr/bin/env python3
"""Peak memory of a run stays below file + KV cache + compute buffers + 64 MiB, and is what the plan says.

Usage: memory.py GGRUN. Uses the embedded model, and SmolLM2 where scripts/get-models has put it.
"""
import json
import os
import resource
import subprocess
import sys

ggrun = sys.argv[1]
models = os.environ.get("GGRUN_MODELS", os.path.expanduser("~/.cache/ggrun"))
smol = os.path.join(models, "SmolLM2-135M-Instruct.Q4_1.gguf")
tiny = os.path.join(os.environ["GGRUN_SOURCE_DIR"], "cli", "ggrun-tiny-q8_0.gguf")
SLACK = 64 << 20

if "build-sanitize" in ggrun or subprocess.run(["grep", "-q", "__asan_init", ggrun]).returncode == 0:
    print("a sanitizer's own memory hides what is measured here")
    sys.exit(77)


def peak(args):
    """Peak resident bytes of one run and its --stats as a dictionary."""
    code = ("import resource,subprocess,sys; r=subprocess.run(sys.argv[1:],capture_output=True);"
            "sys.stderr.buffer.write(r.stderr);"
            "print(r.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    r = subprocess.run([sys.executable, "-c", code, ggrun] + args, capture_output=True, text=True)
    rc, kib = map(int, r.stdout.split())
    assert rc == 0, r.stderr
    stats = {}
    for line in r.stderr.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].replace(".", "", 1).isdigit():
            stats[words[0]] = float(words[1])
    return kib * 1024, stats


bad = 0
cases = [(tiny, ["-p", "Once upon a time", "-n", "64"])]
if os.path.exists(smol):
    text = "The quick brown fox jumps over the lazy dog. " * 40
    cases += [(smol, ["-p", text, "-n", "8"]), (smol, ["-p", text, "-n", "8", "-c", "2048", "-ub", "64", "--no-mmap"])]
for model, args in cases:
    used, stats = peak(["-m", model, "--temp", "0", "--stats"] + args)
    buffers = sum(v for k, v in stats.items() if k.endswith("_allocated_bytes"))
    assert stats["kv_bytes"] > 0 and buffers > 0
    limit = os.path.getsize(model) + stats["kv_bytes"] + buffers + SLACK
    print(f"{os.path.basename(model)}: peak {used / 2**20:.1f} MiB, limit {limit / 2**20:.1f} MiB")
    bad += used > limit

# What 'ggrun plan' says beforehand, when the context is used to its end: within 2 % or 20 MB.
if os.path.exists(smol):
    for n_ctx, n_ubatch, kv in ((256, 256, "f16"), (512, 512, "f16"), (512, 64, "f32"), (1024, 512, "q8_0"), (1024, 128, "f16"), (1024, 256, "f32")):
        args = ["-c", str(n_ctx), "-ub", str(n_ubatch), "-ctk", kv, "-ctv", kv]
        r = subprocess.run([ggrun, "plan", "--json", smol, *args], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        planned = sum(v for d in json.loads(r.stdout)["devices"] for k, v in d.items() if k.endswith("_bytes") and k != "limit_bytes")
        text = "fox " * (n_ctx - 12)
        used, stats = peak(["-m", smol, "--temp", "0", "--stats", "-p", text, "-n", "8", *args])
        assert stats["tokens_prompt"] > n_ctx - 20, stats
        print(f"-c {n_ctx} -ub {n_ubatch} {kv}: planned {planned / 2**20:.1f} MiB, peak {used / 2**20:.1f} MiB")
        bad += abs(used - planned) > max(0.02 * used, 20e6)
sys.exit(1 if bad else 0)
