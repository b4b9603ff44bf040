#!/usr/bin/env python3
"""The table of options, walked: bad and good values of each, spelling, help, man page. Usage: options.py GGRUN"""
import json
import os
import sys

sys.dont_write_bytecode = True
from common import *

table = json.loads(run("help", "--json").stdout)
commands = ["run", "info", "tokenize", "logits", "bench", "plan", "help"]
check("the table is there", len(table) > 40, len(table))

# What stands before the option, so that nothing else is wrong.
BAD = {
    "int": ["", " 1", "1 ", "x", "1x", "0x10", "1.5", "1e3", "nan", "--", "99999999999999999999", "-99999999999999999999"],
    "ints": ["", "x", "1,", ",1", "1,,2", "1, 2", "1.5", "99999999999999999999", "1" * 40],
    "number": ["", " 1", "1 ", "x", "1x", "nan", "NaN", "inf", "-inf", "0x1p3", "1e999", "1,5", "1.2.3"],
    "seed": ["", "x", "-2", "+", "1.5", "18446744073709551616", "nan"],
    "choice": ["", "x", "F32x", "q4_9"],
    "level": ["0", "3", "x", ""],
    "bias": ["", "x", "5", "5+", "5-", "+5", "5*2", "5+x", "5+nan", "5+inf", "5--1", "5+-1", "5+1e39", "5 +1", "-5+1", "99999999999+1", "5-infinity"],
    "breaker": ["", "\\", "a\\q", "\\x", "\\x4", "\\xg0", "a" * 41, "\\n" * 41],
    "order": ["", "?", "kk", "top_k;top_k", "top_k,top_p", ";", "temperature;"],
}
for row in table:
    for cmd in row["commands"]:
        names = row["names"]
        values = list(BAD.get(row["kind"], []))
        if row["kind"] in ("int", "ints", "level") and row["max"] < 2**31 - 1:
            values.append(str(row["max"] + 1))
        if row["kind"] in ("int", "ints", "number") and row["min"] > -1e30:
            values.append(str(row["min"] - 1))
        if row["kind"] == "number" and row["max"] < 2:
            values.append(str(row["max"] + 0.001))
        for name in names[:1]:
            for v in values:
                args = [name + "=" + v] if row["kind"] == "level" else [name, v]
                check_error(f"{cmd} {args}", run(cmd, *args), 2, name, "expected")
        for name in names:
            if row["kind"] not in ("flag", "level"):
                check_error(f"{cmd} {name} without a value", run(cmd, name), 2, name, "needs a value")
            if row["kind"] == "flag" and len(name) > 2:
                check_error(f"{cmd} {name}=1", run(cmd, name + "=1"), 2, name, "takes no value")
    # an option of another command says so
    for cmd in commands:
        if not any(cmd in other["commands"] for other in table if set(other["names"]) & set(row["names"])):
            check_error(f"{cmd} {row['names'][-1]}", run(cmd, row["names"][-1], "1"), 2, "is not an option of", cmd)

# Abbreviations, bundles, wrong dashes and typing errors are refused; a near name is offered.
for word, hint in [("--tem", "--temp"), ("--see", "--seed"), ("--pre", "--predict"), ("-vq", None), ("-n16", None), ("-te", None),
                   ("--m", None), ("---temp", None), ("--", "no error"), ("--topk", "--top-k"), ("--ignore-eso", "--ignore-eos"),
                   ("--no-such-option", None), ("-", "no error"), ("-5", None), ("--versio", "--version")]:
    r = run(word, "1")
    if hint != "no error":
        check_error(word, r, 2, "unknown option", word, *([hint] if hint else []))
check_error("-n=4", run("-n=4"), 2, "-n", "next word")

# Both dashes, = and the next word.
for args in (["--temp", "0"], ["--temp=0"], ["-temp", "0"], ["-temp=0"], ["--temperature=0"], ["--temp", "0", "--seed", "-1"]):
    check_ok(f"{args}", run("-p", "Once", "-n", "1", *args))

# Words.
check_error("two words", run("Tell", "me"), 2, "'me'", "quotes")
check_error("two words after --", run("--", "-n", "1"), 2, "'1'", "quotes")
check_error("two texts", run("-p", "a", "-p", "b"), 2, "2 places")
check_error("text and file", run("-p", "a", "-f", "b"), 2, "2 places")
check_error("word and -p", run("a", "-p", "b"), 2, "2 places")
check_error("two models", run("-m", "a", "-m", "b", "-p", "x"), 2, "2 model files")
check_error("empty model name", run("-m", "", "-p", "x"), 2, "-m")
check_error("bench word", run("bench", "word"), 2, "'word'")
check_error("raw and chat", run("--raw", "--chat", "x"), 2, "--raw", "--chat")
check_error("dump file alone", run("--dump-file", "x", "-p", "a"), 2, "--dump-file")
check_error("-- and -x", run("--raw", "-n", "0", "-c", "1", "--", "-x -y"), 2, "context")  # the text is "-x -y"
check_ok("a word like a command later", run("-n", "1", "info"))
check_error("nothing to measure", run("bench", "-p", "0", "-n", "0"), 2, "nothing to measure")

# Control bytes in a value do not reach the terminal.
for args in (["--temp", "\x1b[31m"], ["\x1b]0;x\x07", "\x1b"], ["-m", "no\x1bfile\n", "-p", "a"], ["--\x1b"], ["--isa", "\x1b"]):
    r = run(*args)
    check(f"control bytes {args}", r.returncode and b"\x1b" not in r.stderr and len(messages(r)) == 1, r.stderr)

# Help and version.
for args in (["--help"], ["-h"], ["help"]):
    r = run(*args)
    check(f"{args}", r.returncode == 0 and r.stdout.startswith(b"Usage: ggrun") and not r.stderr, r)
manual = os.path.join(source, "cli", "ggrun.1")
page = open(manual).read().replace("\\-", "-")
for cmd in commands:
    for args in ([cmd, "--help"], ["help", cmd], [cmd, "-h"]):
        r = run(*args)
        check(f"{args}", r.returncode == 0 and f"Usage: ggrun {'[run]' if cmd == 'run' else cmd}".encode() in r.stdout and not r.stderr, r)
        check(f"{args}: lines fit", all(len(l) <= 100 for l in r.stdout.decode().splitlines()))
    check(f"{cmd} --version", run(cmd, "--version").stdout.startswith(b"ggrun 0."))
    check(f"man page: {cmd}", cmd in page)
    words = run("help", cmd, "--words").stdout.decode().split()
    for row in table:
        for name in row["names"]:
            if cmd in row["commands"]:
                check(f"help {cmd}: {name}", name.encode() in r.stdout)
                check(f"words {cmd}: {name}", name in words)
for row in table:
    for name in row["names"]:
        check(f"man page: {name}", name in page)
for v, code in (("1", 0), ("2", 0), ("0", 0), ("3", 2), ("x", 2)):
    r = run("-p", "Once", "-n", "1", env={"GGRUN_SCHED_DEBUG": v})
    check(f"GGRUN_SCHED_DEBUG={v}", r.returncode == code and (b"split" in r.stderr) == (v in "12"), r)
check_error("help nosuch", run("help", "nosuch"), 2, "'nosuch'")
check("--version", run("--version").stdout.startswith(b"ggrun 0."))
finish()
