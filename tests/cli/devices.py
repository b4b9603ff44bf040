#!/usr/bin/env python3
"""Where layers and weights go, on simulated accelerators: always the bytes of the CPU. Usage: devices.py GGRUN"""
import os
import re

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
    ["-sm", "none", "-mg", "1"], ["-ub", "1"], ["-ub", "8"], ["-ub", "3", "-ngl", "3"], ["--no-reuse"],
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
    (["--sim", "1", "-ot", "nomatch=CPU"], ["nomatch", "no tensor"]),
    (["--sim", "1", "-cmoe"], ["-cmoe", "no experts"]),
    (["--sim", "1", "-ncmoe", "1"], ["-ncmoe", "no experts"]),
):
    check_error(f"{args}", run(*ASK, *args), 2, *words)

# ---- too little memory, at each stage ----
for size in ("1MiB", "3MiB", "4600KiB", "6MiB", "8500KiB"):
    check_error(f"a device of {size}", run(*ASK, "--sim", size), 4, "SIM0", "not enough memory", "try")
check_ok("a device that is large enough", run(*ASK, "--sim", "64MiB"))

# ---- experts ----
moe = os.path.join(source, "..", "shared", "oracles", "archs", "qwen3moe-moe.gguf")
if os.path.exists(moe):
    base = ("logits", "-m", moe, "--ids", "1,5,9,60,3,3,77,12")
    ref = run(*base)
    check("logits of a mixture of experts", ref.returncode == 0 and len(ref.stdout) > 100, ref.stderr)
    for args in (["-cmoe"], ["-ncmoe", "1"], ["-ngl", "1"], ["-ot", "exps=SIM1"], ["-nkvo"], ["-ub", "3"]):
        r = run(*base, "--sim", "2", *args)
        check(f"experts {args}", r.stdout == ref.stdout and r.returncode == 0, r.stderr)
    # enough tokens for the accelerators to want the products: experts that nobody asks for are not copied
    long = (*base[:-1], ",".join(str(i * 7 % 100) for i in range(40)))
    ref = run(*long)
    for args in (["-cmoe"], ["-cmoe", "--slots", "2", "-ub", "33"], ["-ot", "exps=CPU"]):
        r = run(*long, "--sim", "2", *args, "--stats")
        stats = dict(re.findall(r"^(\w+) (\d+)$", r.stderr.decode(), re.M))
        check(f"experts copied {args}", r.stdout == ref.stdout and int(stats["copied_bytes"]) > 0, r.stderr)
finish()
