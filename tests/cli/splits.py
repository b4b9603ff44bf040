#!/usr/bin/env python3
"""Splits beside llama.cpp's for the same placement: the same layers, and no more splits or copies.

Usage: splits.py GGRUN. Needs the models that scripts/get-models fetches. tests/data/sched/splits.json: by
case the layers of each device (first, last) and each split's device and number of copied inputs, as llama.cpp
(October 2026) plans one token without flash attention at a context of 256, on two devices that behave like GPUs.
"""
import json
import os
import sys

from common import *

models = os.environ.get("GGRUN_MODELS", os.path.expanduser("~/.cache/ggrun"))
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
if not all(os.path.exists(os.path.join(models, f)) for f in FILES.values()):
    print(f"no models in {models}; scripts/get-models fetches them")
    sys.exit(77)

cases = json.load(open(os.path.join(source, "tests", "data", "sched", "splits.json")))
check("all cases", len(cases) == 30, len(cases))
for case in cases:
    for fa in ("off", "on"):
        args = ["plan", "--json", "-m", os.path.join(models, FILES[case["model"]]), "-c", "256", "-fa", fa,
                "--sim", str(case["n_devices"]), *case["flags"]]
        r = run(*args)
        check(f"{args}", r.returncode == 0, r.stderr)
        j = json.loads(r.stdout)
        layers = {d: [l[0], l[-1]] for d, l in j["layers"].items()}
        check(f"layers {args}", layers == case["layers"] and sum(map(len, j["layers"].values())) == j["n_layer"] + 1, layers, case["layers"])
        check(f"splits {args}", len(j["splits"]) <= len(case["splits"]), len(j["splits"]), len(case["splits"]))
        # Some of its CPU splits behind another device list no inputs, since its devices' memory is the process's
        # own and the CPU reads it in place. Here it has to copy, so that only the devices' copies compare.
        free = any(d == "CPU" and n == 0 for d, n in case["splits"][1:])
        ours = sum(len(s["inputs"]) for s in j["splits"] if not (free and s["device"] == "CPU"))
        theirs = sum(n for d, n in case["splits"] if not (free and d == "CPU"))
        check(f"copies {args}", ours <= theirs, ours, theirs, case["splits"])
finish()
