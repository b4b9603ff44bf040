#!/usr/bin/env python3
"""A real model and a mixture of experts over a matrix of placements: the bytes of the CPU. Usage: matrix.py GGRUN

Needs SmolLM2 (scripts/get-models); the experts need the oracle files beside the checkout.
"""
import itertools
import os
import sys

from common import *

models = os.environ.get("GGRUN_MODELS", os.path.expanduser("~/.cache/ggrun"))
smol = os.path.join(models, "SmolLM2-135M-Instruct.Q4_1.gguf")
moe = os.path.join(source, "..", "shared", "oracles", "archs", "qwen3moe-moe.gguf")
if not os.path.exists(smol):
    print(f"{smol} is not here; scripts/get-models fetches it")
    sys.exit(77)

KINDS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "output_norm", "token_embd")
EXPERT_KINDS = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


def matrix(n_layer, kinds):
    """Options of placements: layers, numbers of devices, each kind of tensor on each side, batches, slots, reuse."""
    m = [["--sim", "1", "-ngl", str(n)] for n in range(n_layer + 3)]
    m += [["--sim", str(n)] for n in (1, 2, 3, 4)]
    m += [["--sim", "1", "-ngl", "0", "-ot", f"{k}\\.=SIM0"] for k in kinds]
    m += [["--sim", "2", "-ngl", "all", "-ot", f"{k}\\.=CPU"] for k in kinds]
    m += [["--sim", "2", "-ngl", "all", "-ot", f"{k}\\.=SIM1_ROWS"] for k in kinds]
    m += [["--sim", "2", *a] for a in (
        ["-nkvo"], ["-nkvo", "-ngl", "1"], ["-sm", "row"], ["-sm", "row", "-nkvo"], ["-sm", "row", "-ts", "1,3", "-mg", "1"], ["-sm", "none"],
        ["-sm", "none", "-mg", "1"], ["-ts", "5,1"], ["-fa", "off"], ["-fa", "off", "-nkvo"], ["--no-op-offload", "-ngl", "0"])]
    m += [["--sim", str(n), "--slots", slots, "-ub", ub, *reuse] for n, slots, ub, reuse in
          itertools.product((1, 3), ("1", "2", "4"), ("1", "8", "512"), ([], ["--no-reuse"]))]
    return m


def compare(what, base, args):
    ref = {fa: run(*base, "-fa", fa) for fa in ("auto", "off")}  # each has an order of summation of its own
    check(f"{what}: the CPU", all(r.returncode == 0 and len(r.stdout) > 3 for r in ref.values()), ref)
    for a in args:
        r = run(*base, *a)
        check(f"{what} {a}", r.returncode == 0 and r.stdout == ref["off" if "-fa" in a else "auto"].stdout, r.returncode, r.stdout, r.stderr)
    print(f"{what}: {len(args)} placements")


all_of_smol = matrix(30, KINDS)
check("sixty and more", len(all_of_smol) > 60, len(all_of_smol))
text = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. The capital of Japan is"
# Under a sanitizer, a twentieth of the time tells as much about threads and addresses.
compare("SmolLM2", ("-m", smol, "-p", text, "-n", "4", "--temp", "0"), all_of_smol[::20] if sanitized else all_of_smol)
if os.path.exists(moe):
    ids = ",".join(str(1 + i * 7 % 120) for i in range(40))
    compare("experts", ("logits", "-m", moe, "--ids", ids, "-o", "-"), matrix(2, KINDS[:6] + EXPERT_KINDS + KINDS[9:])
            + [["--sim", "2", *a] for a in (["-cmoe"], ["-ncmoe", "1"], ["-cmoe", "--no-op-offload"], ["-cmoe", "-ub", "8"])])
finish()
