#!/usr/bin/env python3
"""SmolLM2 through the program: a sensible answer, and the same bytes however it is computed.

Usage: real_model.py GGRUN. Needs SmolLM2-135M-Instruct.Q4_1.gguf (scripts/get-models).
"""
import os
import subprocess
import sys

ggrun = sys.argv[1]
models = os.environ.get("GGRUN_MODELS", os.path.expanduser("~/.cache/ggrun"))
smol = os.path.join(models, "SmolLM2-135M-Instruct.Q4_1.gguf")
if not os.path.exists(smol):
    print("SmolLM2 is not here; scripts/get-models fetches it")
    sys.exit(77)


def run(*args):
    r = subprocess.run([ggrun, "-m", smol, "-n", "16", "--temp", "0", *args], capture_output=True, timeout=300)
    assert r.returncode == 0, r.stderr.decode()
    return r.stdout


prompt = "The capital of France is"
want = run("-p", prompt)
print(want.decode())
bad = b"Paris" not in want
for args in (["-t", "1"], ["-t", "2"], ["-ub", "1"], ["-ub", "7"], ["-ub", "512"], ["--no-reuse"], ["--check-reuse"],
             ["-b", "3"], ["--no-mmap"]):
    got = run("-p", prompt, *args)
    if got != want:
        print(f"{args}: {got!r}, expected {want!r}")
        bad = True
sys.exit(1 if bad else 0)
