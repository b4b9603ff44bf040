#!/usr/bin/env python3
"""The samplers' options from outside: the chain that --verbose prints, biases, what is refused. Usage: sampling.py GGRUN"""
import sys

sys.dont_write_bytecode = True
from common import *

ASK = ["-n", "8", "-t", "1", "--raw", "Once upon a time"]


def chain(*args):
    """The line of the chain, as a list, without the draw."""
    r = run("-v", "-s", "1", *args, *ASK)
    lines = [l for l in r.stderr.decode().splitlines() if l.startswith("ggrun: samplers: ")]
    check(f"{args}: one line for the chain", r.returncode == 0 and len(lines) == 1, r.stderr)
    return lines[0][len("ggrun: samplers: "):].split(" -> ") if lines else []


def warnings(*args):
    return [l for l in run(*args, *ASK).stderr.decode().splitlines() if "warning" in l]


# The chain and its values.
DEFAULT = ["penalties off", "dry off", "top_n_sigma off", "top_k=40", "typ_p off", "top_p=0.95", "min_p=0.05", "xtc off", "temperature=0.8", "dist(seed=1)"]
check("the default chain", chain() == DEFAULT, chain())
check("in another order", chain("--samplers", "temperature;top_k", "--top-k", "7") == ["temperature=0.8", "top_k=7", "dist(seed=1)"])
check("by letters", chain("--sampler-seq", "tk", "--top-k", "7") == ["temperature=0.8", "top_k=7", "dist(seed=1)"])
check("the last order counts", chain("--sampler-seq", "tk", "--samplers", "min_p") == ["min_p=0.05", "dist(seed=1)"])
check("other spellings", chain("--samplers", "Top-K;nucleus;temp") == ["top_k=40", "top_p=0.95", "temperature=0.8", "dist(seed=1)"])
check("penalties", chain("--presence-penalty", "0.5", "--frequency-penalty", "-0.25", "--repeat-penalty", "1.5", "--repeat-last-n", "9")[0] ==
      "penalties(last_n=9, repeat=1.5, frequency=-0.25, presence=0.5)")
check("filters", chain("--top-nsigma", "1.5", "--typical", "0.9", "--xtc-probability", "0.5", "--xtc-threshold", "0.2")[2:8] ==
      ["top_n_sigma=1.5", "top_k=40", "typ_p=0.9", "top_p=0.95", "min_p=0.05", "xtc(probability=0.5, threshold=0.2)"])
check("dynamic temperature", chain("--dynatemp-range", "0.5", "--dynatemp-exp", "2", "--temp", "0.7")[-2] == "temperature(temp=0.7, range=0.5, exp=2)")
check("dry", chain("--dry-multiplier", "0.5", "--dry-base", "2", "--dry-allowed-length", "3", "--dry-penalty-last-n", "-1")[1] ==
      "dry(multiplier=0.5, base=2, allowed_length=3, penalty_last_n=-1)")
check("adaptive-p", chain("--adaptive-target", "0.25", "--adaptive-decay", "0.5")[-2:] == ["temperature=0.8", "adaptive_p(target=0.25, decay=0.5, seed=1)"])
check("adaptive-p goes last", chain("--samplers", "adaptive_p;top_k", "--adaptive-target", "0.25") == ["top_k=40", "adaptive_p(target=0.25, decay=0.9, seed=1)"])
for version in "12":
    check("mirostat " + version, chain("--mirostat", version, "--mirostat-ent", "4", "--mirostat-lr", "0.2") ==
          ["temperature=0.8", f"mirostat(version={version}, ent=4, lr=0.2, seed=1)"])
check("biases", chain("-l", "5+1", "-l", "6-inf", "--logit-bias", "5-0.5")[0] == "logit_bias(2 tokens)")
check("nothing without --verbose", b"samplers" not in run(*ASK).stderr)

# The help names the order that is used.
letters = "edskypmxta"
names = [step.split("=")[0].split("(")[0].split(" ")[0] for step in chain("--adaptive-target", "0.5")]
for words in (run("help", "run").stdout.decode(), open(os.path.join(source, "cli", "ggrun.1")).read()):
    listed = ", ".join(f"({l}) {n}" for l, n in zip(letters, names))
    check("the order in the help", listed in " ".join(words.split()) and letters in words, listed)
    check("one letter each", len(letters) == len(names))
for letter, name in zip(letters, names):
    check(f"{letter} is {name}", chain("--sampler-seq", letter, "--adaptive-target", "0.5") == chain("--samplers", name, "--adaptive-target", "0.5"))
check("the letters are the default", chain("--sampler-seq", letters) == chain())

# A value that has no effect is said to have none.
check("no warning", not warnings() and not warnings("--samplers", "temp") and not warnings("--top-k", "5"))
for args, word in ((["--top-k", "5"], "top_k=5"), (["--temp", "0"], "temperature=0"), (["--min-p", "0.1"], "min_p=0.1"),
                   (["--presence-penalty", "1"], "penalties(")):
    w = warnings("--samplers", "top_p", *args)
    check(f"{args} in vain", len(w) == 1 and word in w[0] and "no effect" in w[0], w)

w = warnings("--mirostat", "2", "--top-k", "5", "--temp", "0.5")
check("in vain with mirostat", len(w) == 1 and "top_k=5" in w[0] and "mirostat" in w[0], w)
check("adaptive-p in vain", "adaptive_p" in "".join(warnings("--samplers", "top_k", "--adaptive-target", "0.5")))

# Biases decide.
fox = run("tokenize", "--json", "--no-bos", "-p", " fox").stdout.decode().strip("[]\n").split(",")[-1]
piece = run("tokenize", "--decode", "--ids", fox).stdout
for args in (["--temp", "0"], ["--temp", "1.5", "--top-k", "3"]):
    r = run("-l", fox + "+1000", *args, *ASK)
    check(f"{args}: one token alone", r.stdout.count(piece) == 8, r.stdout)
check("a token that never comes", run("-l", fox + "+1000", "-l", fox + "-inf", "--temp", "0", *ASK).stdout ==
      run("-l", fox + "-inf", "--temp", "0", *ASK).stdout)
check_error("a token that is not there", run("-l", "1024+1", *ASK), 2, "--logit-bias", "1024", "vocabulary")
check_ok("the last token", run("-l", "1023+1", *ASK))
check_error("no token left", run(*[a for i in range(1024) for a in ("-l", f"{i}-inf")], *ASK), 3, "no token is left")

# --temp 0 is the most likely token, whatever else is set that keeps it.
greedy = run("--temp", "0", *ASK).stdout
for args in (["--top-k", "1"], ["--top-p", "0.1"], ["--min-p", "1"], ["--top-nsigma", "0.1"], ["--xtc-probability", "0.9", "--xtc-threshold", "0.6"], ["--samplers", "temperature"], ["--mirostat", "1"], ["--mirostat", "2"], ["--adaptive-target", "0.1"], ["--samplers", "temp;top_k;top_p"], ["-s", "9"]):
    check(f"greedy with {args}", run("--temp", "0", *args, *ASK).stdout == greedy)
finish()
