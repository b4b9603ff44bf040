#!/usr/bin/env python3
"""
The embedded model against scripts/tiny-model/samples.txt, which another program wrote: prompt ids exactly;
output ids up to tokens that are almost equally likely; printed text. Usage: story.py GGRUN
"""
import ast
import json
import os
import re
import sys

sys.dont_write_bytecode = True
from common import *

ONE = ["--temp", "0", "-t", "1"]  # one thread is fastest for a model of this size
samples = re.findall(r"== \d+\nprompt: ([^\n]*)\nprompt ids: ([^\n]*)\noutput ids: ([^\n]*)\noutput: ([^\n]*)",
                     open(os.path.join(source, "scripts", "tiny-model", "samples.txt")).read())
check("ten samples", len(samples) == 10, len(samples))
n_tokens = n_other = 0
for prompt, prompt_ids, output_ids, output in samples:
    prompt = ast.literal_eval(prompt)
    prompt_ids = list(map(int, prompt_ids.split()))
    output_ids = list(map(int, output_ids.split()))
    check(f"ids of {prompt!r}", json.loads(run("tokenize", "-p", prompt, "--json").stdout) == prompt_ids)
    # each token is the most likely one after those before it, or nearly
    ids = ",".join(map(str, prompt_ids + output_ids[:-1]))
    rows = json.loads(run("logits", "--ids", ids, "--json", "--top", "20", "-t", "1").stdout)[len(prompt_ids) - 1:]
    first_other = len(output_ids)
    for i, (row, want) in enumerate(zip(rows, output_ids)):
        n_tokens += 1
        if row["top_ids"][0] != want:
            n_other += 1
            first_other = min(first_other, i)
            gap = row["top_logprobs"][0] - row["top_logprobs"][row["top_ids"].index(want)] if want in row["top_ids"] else 99
            check(f"token {i} of {prompt!r}", gap < 0.1, want, row)
    # and the same is printed, up to the first token that is another
    same = output_ids[:first_other]
    text = run("tokenize", "--decode", "--no-special", "--ids", ",".join(map(str, prompt_ids + same))).stdout
    start = run("tokenize", "--decode", "--no-special", "--ids", ",".join(map(str, prompt_ids))).stdout
    r = run("-p", prompt, *ONE)
    check(f"text of {prompt!r}", r.returncode == 0 and r.stdout.startswith(text[len(start):]), r.stdout, text[len(start):])
    if first_other == len(output_ids):
        check(f"whole text of {prompt!r}", r.stdout == output.encode() + b"\n", r.stdout, output)
check("few tokens are others", n_tokens > 1000 and n_other <= n_tokens / 100, n_other, n_tokens)

# A request goes through the template; --raw and -p do not.
ask = "Tell me a story about a fox and a lantern."
chat = run("-p", f"<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n", *ONE).stdout
for args, stdin in (([ask], b""), ([], ask.encode()), ([], ask.encode() + b"\n"), (["-"], ask.encode()), (["--chat", "-p", ask], b""),
                    (["-m", tiny, "--chat", ask], b"")):
    check(f"chat {args} {stdin}", run(*ONE, *args, stdin=stdin).stdout == chat)
raw = run(*ONE, "-p", ask).stdout
check("raw is another", raw != chat and run(*ONE, "--raw", ask).stdout == raw and run(*ONE, "-m", tiny, ask).stdout == raw)

# Seeds, and the same bytes however it is computed.
want = run(ask, "-s", "7", "-n", "40").stdout
check("a seed", len(want) > 50 and want == run(ask, "-s", "7", "-n", "40").stdout)
for args in (["-t", "1"], ["-t", "2"], ["-t", "3"], ["-ub", "1"], ["-ub", "7"], ["-b", "5"], ["--no-reuse"], ["--check-reuse"], ["-c", "100"]):
    got = run(ask, "-s", "7", "-n", "40", *args)
    check(f"same text with {args}", got.stdout == want, got)
for kind in ("f32", "f16", "bf16", "q8_0", "q4_0"):
    r = run(ask, "-n", "20", *ONE, "-ctk", kind, "-ctv", kind, "--stats")
    n = re.search(rb"^kv_bytes (\d+)$", r.stderr, re.M)
    bits = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q4_0": 4.5}[kind]
    check(f"KV cache of {kind}", r.returncode == 0 and len(r.stdout) > 30 and n and int(n[1]) == 65536 * bits, r)
off = run(ask, "-n", "40", *ONE, "-fa", "off")
check("attention in steps", off.returncode == 0 and off.stdout == run(ask, "-n", "40", *ONE).stdout, off)
r = run(ask, "-n", "1", "-fa", "off", "-ctv", "q4_0")
check("no values in blocks without flash attention", r.returncode == 2 and b"-fa on, or -ctv f16" in r.stderr and not r.stdout, r)
hot = ["--temp", "1.5", "-n", "25", "-t", "1"]
check("10 texts of 10 seeds", len({run(ask, *hot, "--top-k", k, "-s", str(s)).stdout for s in range(10) for k in ("0", "-1")}) == 10)
check("one text with top-k 1", len({run(ask, *hot, "--top-k", "1", "-s", str(s)).stdout for s in range(3)}) == 1)
check("one text with top-p 0", len({run(ask, *hot, "--top-p", "0", "-s", str(s)).stdout for s in range(3)}) == 1)
check("seeds differ by themselves", len({run(ask, *hot).stdout for _ in range(4)}) > 1)
finish()
