#!/usr/bin/env python3
"""-bs: the text is that of the host's sampler, and what cannot be done in the graph is said. Usage: backend_sampling.py GGRUN"""
import sys

sys.dont_write_bytecode = True
from common import *

N = 60
ASK = ["-n", str(N), "--raw", "--stats", "Once upon a time there was a"]
NOTE = "ggrun: -bs has no effect: "


def stats(r):
    return dict(l.split(" ", 1) for l in r.stderr.decode().splitlines() if not l.startswith("ggrun: ") and " " in l)


def notes(r):
    return [l for l in r.stderr.decode().splitlines() if l.startswith(NOTE)]


fox = run("tokenize", "--json", "--no-bos", "-p", " fox").stdout.decode().strip("[]\n").split(",")[-1]
IN_GRAPH = (
    ["--temp", "0"],
    ["--temp", "0", "--ignore-eos"],
    ["--temp", "0", "-l", fox + "-inf", "--min-p", "0.3"],
    ["--top-k", "1", "--temp", "1.7", "-s", "2"],
    ["-s", "4"],
    ["-s", "4", "--ignore-eos", "-l", fox + "-inf"],
    ["-s", "5", "--samplers", "top_k;temperature", "--top-k", "7", "--temp", "1.5"],
    ["-s", "6", "--samplers", "top_k;penalties;dry;temperature", "--repeat-penalty", "1.3", "--dry-multiplier", "0.8"],
    ["-s", "7", "--xtc-probability", "0.5", "--typical", "0.9", "--dynatemp-range", "0.4"],
    ["-s", "8", "--adaptive-target", "0.4"],
    ["-s", "9", "--top-k", "1023", "--top-p", "1", "--min-p", "0", "--temp", "1.3"],
    ["--temp", "0", "--mirostat", "2"],
)
HOW = ([], ["--sim", "2"], ["--sim", "1", "-ngl", "2"], ["-t", "1", "--check-reuse"], ["-ub", "3"], ["--no-reuse"])
for i, args in enumerate(IN_GRAPH):
    want = run(*args, *ASK)
    check(f"{args}: not in the graph unless asked for", stats(want)["graph_sampled_tokens"] == "0", want.stderr)
    for how in HOW if i in (0, 5) else [HOW[i % len(HOW)], HOW[1]]:
        r = run("-bs", *args, *how, *ASK)
        s = stats(r)
        check(f"{args} {how}: the same text", r.returncode == 0 and r.stdout == want.stdout, r.stdout, want.stdout, r.stderr)
        # one more when it is the end of the text
        n = int(s["tokens_generated"]) + (int(s["tokens_generated"]) < N)
        check(f"{args} {how}: in the graph", int(s["graph_sampled_tokens"]) == n and not notes(r), s, r.stderr)
        check(f"{args} {how}: no regrow", s["regrows"] == "0" and "rebuild_samplers" not in s, s)

# Where the logits are: no split for the host behind them.
for sim, n in (("1", 2), ("2", 3)):
    for args in (["--temp", "0", "--ignore-eos"], ["-s", "1"]):
        s = stats(run("-bs", "--sim", sim, *args, *ASK))
        check(f"{sim} devices {args}: splits", s["splits"] == str(n), s)

# What comes before changes logits or the choice: the host samples, and says what it is.
ON_HOST = (
    (["--temp", "0", "--repeat-penalty", "1.2"], "penalties"),
    (["-s", "3", "--dry-multiplier", "0.8"], "dry"),
    (["-s", "3", "-l", fox + "+2"], "logit_bias"),
    (["-s", "3", "--top-k", "0"], "top_p"),
    (["-s", "3", "--top-k", "1024"], "top_k"),
    (["-s", "3", "--top-nsigma", "1"], "top_n_sigma"),
    (["-s", "3", "--samplers", "temperature;top_k"], "temperature"),
    (["-s", "3", "--samplers", "min_p"], "min_p"),
    (["-s", "3", "--temp", "1", "--mirostat", "1"], "mirostat"),
)
for args, why in ON_HOST:
    want, r = run(*args, *ASK), run("--backend-sampling", *args, *ASK)
    check(f"{args}: the same text", r.returncode == 0 and r.stdout == want.stdout, r.stdout, want.stdout, r.stderr)
    check(f"{args}: on the host", stats(r)["graph_sampled_tokens"] == "0")
    check(f"{args}: says why", len(notes(r)) == 1 and f" {why} comes first" in notes(r)[0], r.stderr)
check("a quiet one", not notes(run("-bs", "-q", "--top-k", "0", *ASK)))

# Of a full context the older half goes; the ids that are left to pick may be none.
shift = ["--temp", "0", "-c", "64", "--context-shift", "--ignore-eos", "-n", "150", "--raw", "--stats", "The fox and the owl"]
want, r = run(*shift), run("-bs", *shift)
check("a context that is shifted", r.stdout == want.stdout and int(stats(r)["context_shifts"]) > 1 and
      stats(r)["graph_sampled_tokens"] == "150", r.stdout, want.stdout, r.stderr)
none = [a for i in range(1024) for a in ("-l", f"{i}-inf")]
for args in (["--temp", "0"], ["--top-k", "5"]):
    check_error(f"no token left {args}", run("-bs", *none, *args, "-n", "4", "--raw", "Once"), 3, "no token is left")
finish()
