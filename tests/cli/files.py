#!/usr/bin/env python3
"""Model files as people hold them: in parts, in the wrong parts, under odd names, with too much or too little in them, and with keys
overridden. Usage: files.py GGRUN"""
import json
import os
import shutil
import sys

sys.dont_write_bytecode = True
from common import *
from gguf_file import *

ONE = ["-p", "Once upon a time", "-n", "8", "--temp", "0", "-t", "1"]
model = File(tiny)
want = run("-m", tiny, *ONE).stdout
check("the story model, taken apart and put together", run("-m", model.write(os.path.join(tmp, "copy.gguf")), *ONE).stdout == want and want)


def folder(name, parts, base="m"):
    """A folder with the parts of a set; returns the path of part i (from 1)."""
    d = os.path.join(tmp, name)
    os.mkdir(d)
    for i, p in enumerate(parts):
        p.write(os.path.join(d, f"{base}-{i + 1:05}-of-{len(parts):05}.gguf"))
    return lambda i: os.path.join(d, f"{base}-{i:05}-of-{len(parts):05}.gguf")


def refused(what, path, code, *words):
    """run, info and tokenize say the same one line."""
    lines = set()
    for args in (["-m", path, *ONE], ["-m", path, "--no-mmap", *ONE], ["info", path], ["tokenize", "-m", path, "a"]):
        r = run(*args)
        check_error(f"{what}: {args[0]}", r, code, *words)
        lines.update(messages(r))
    check(f"{what}: one line", len(lines) == 1, lines)


# ---- parts ----
part = folder("set", model.split(3))
for i in (1, 2, 3):
    for how in ([], ["--no-mmap"]):
        check(f"part {i} stands for the set {how}", run("-m", part(i), *how, *ONE).stdout == want)
    j = json.loads(run("info", "--json", part(i)).stdout)
    check(f"info on part {i}", j["files"] == 3 and j["tensor_count"] == len(model.tensors), j["files"])
check_ok("a vocabulary from any part", run("tokenize", "-m", part(3), "a"))

for i in (1, 2, 3):  # one is missing: it is named, whichever is given
    os.rename(part(i), part(i) + ".away")
    for given in {1, 2, 3} - {i}:
        refused(f"{i} missing, {given} given", part(given), 1, f"part {i} of 3" if i > 1 else f"part {given} of 3", f"'{part(i)}'", "No such file")
    refused(f"{i} missing and given", part(i), 1, "cannot open", part(i))
    os.rename(part(i) + ".away", part(i))

joined = os.path.join(tmp, "joined.gguf")
for order in ((1, 2, 3), (2, 1, 3), (1, 2)):
    with open(joined, "wb") as f:
        for i in order:
            f.write(open(part(i), "rb").read())
    refused(f"joined {order}", joined, 3, "joined into one file", f"part {order[0]} of 3", str(os.path.getsize(part(order[0]))), "merge")

# A file cut into pieces by size is another matter: those are joined, and say so when they are not.
whole = open(tiny, "rb").read()
pieces = [os.path.join(tmp, f"m.gguf.part{i}of2") for i in (1, 2)]
for p, data in zip(pieces, (whole[:2000000], whole[2000000:])):
    with open(p, "wb") as f:
        f.write(data)
    refused(f"a piece {os.path.basename(p)}", p, 3, "join the pieces with cat", os.path.basename(p))
with open(joined, "wb") as f:
    for p in pieces:
        f.write(open(p, "rb").read())
check("pieces joined", run("-m", joined, *ONE).stdout == want)

# Parts of other models.
half = File(tiny)
half.tensors = dict(list(half.tensors.items())[:20])
other = folder("other", half.split(3))
shutil.copy(other(2), part(2))
refused("a part of a model with fewer tensors", part(1), 3, "part 2 of 3", part(2), "another model", "20 tensors", "38")
four = folder("four", model.split(4))
shutil.copy(four(2), part(2))
refused("a part of a set of four", part(1), 3, part(2), "part 2 of 4", "expected part 2 of 3")
shutil.copy(part(3), part(2))
refused("the same part twice", part(1), 3, part(2), "part 3 of 3", "expected part 2 of 3")
shutil.copy(tiny, part(2))
refused("a whole model in place of a part", part(1), 3, part(2), "a file of its own", "part 2 of 3")
with open(part(2), "w") as f:
    f.write("<!DOCTYPE html><html>")
refused("a web page in place of a part", part(1), 3, part(2), "web page")
with open(part(2), "wb") as f:
    f.write(model.split(3)[1].bytes()[:-5000])
refused("a part that is cut off", part(1), 3, part(2), "cut off", "tensor '")

# Names.
p = part(1)
renamed = os.path.join(tmp, "renamed.gguf")
shutil.copy(part(1), renamed)
refused("part 1 renamed", renamed, 3, "part 1 of 3", "-00001-of-00003.gguf")
shutil.copy(part(3), renamed)
refused("part 3 renamed", renamed, 2, "part 3 of 3", "-00001-of-00003.gguf")
for name in ("x-00001-of-00001.gguf", "x-00002-of-00003.gguf", "x-00001-of-00002.gguf"):
    check(f"a whole model called {name}", run("-m", shutil.copy(tiny, os.path.join(tmp, name)), *ONE).stdout == want)
lone = File(tiny)
lone.set("split.no", U16, 0).set("split.count", U16, 1).set("split.tensors.count", I32, 38)
for name in ("one.gguf", "one-00001-of-00001.gguf"):
    check(f"a set of one called {name}", run("-m", lone.write(os.path.join(tmp, name)), *ONE).stdout == want)

# ---- tensors: too many, too few ----
more = File(tiny)
more.tensors["foo.bar.weight"] = ((32,), 0, bytes(128))
r = run("-m", more.write(os.path.join(tmp, "more.gguf")), *ONE)
check("an unknown tensor is named, and no harm", r.stdout == want and r.returncode == 0 and b"'foo.bar.weight'" in r.stderr and not messages(r), r)
fewer = File(tiny)
del fewer.tensors["blk.1.ffn_norm.weight"]
check_error("a missing tensor is named", run("-m", fewer.write(os.path.join(tmp, "fewer.gguf")), *ONE), 3, "blk.1.ffn_norm.weight", "layer 1", "missing")

# ---- a vocabulary alone ----
vocab = File(tiny)
vocab.tensors = {}
p = vocab.write(os.path.join(tmp, "vocab.gguf"))
check("a vocabulary tokenizes", run("tokenize", "-m", p, "--json", "Once upon a time").stdout == b"[1,696,789,262,453]\n")
check("and back", run("tokenize", "-m", p, "--decode", "--ids", "1,696,789").stdout == b"Once upon")
check_ok("info on a vocabulary", run("info", p))
for args in (["-p", "a"], ["--chat", "a"], ["logits", "--ids", "1", "--json"]):
    cmd = args[:1] if args[0] == "logits" else []
    check_error(f"a vocabulary alone: {args}", run(*cmd, "-m", p, *args[len(cmd):]), 3, "vocabulary only")
rows = json.loads(run("bench", "-m", p, "-p", "1", "-n", "0", "-r", "1", "-o", "json").stdout)
check("a vocabulary alone: bench", "vocabulary only" in rows[0]["error"], rows)

# ---- --override-kv ----
OV = "--override-kv"
r = run("info", "--keys", tiny, OV, "llama.context_length=int:100", OV, "my.key=str:a=b:c, d", OV, "my.n=int:-5", OV, "my.x=float:-2.5e-3",
        OV, "my.yes=bool:true", OV, "my.empty=str:", OV, "llama.rope.freq_base=float:500000")
lines = r.stdout.decode().splitlines()
for line in ("llama.context_length u32 = 100 (overridden)", "my.key str = 'a=b:c, d' (overridden)", "my.n i64 = -5 (overridden)",
             "my.x f64 = -0.0025 (overridden)", "my.yes bool = true (overridden)", "my.empty str = '' (overridden)",
             "llama.rope.freq_base f32 = 5e+05 (overridden)"):
    check(f"info shows {line}", line in lines, [l for l in lines if "overridden" in l])
check("nothing else is", sum("overridden" in l for l in lines) == 7 and "context       100 tokens" in lines, lines[:10])
j = json.loads(run("info", "--keys", "--json", tiny, OV, "llama.context_length=int:100", OV, "a.b=int:1", OV, "a.b=int:2").stdout)
check("info --json, and the last one wins", j["hparams"]["context_length"] == 100 and j["keys"]["a.b"] == 2, j["hparams"])
check("a run heeds it", run("-m", tiny, *ONE, OV, "llama.attention.layer_norm_rms_epsilon=float:9").stdout not in (want, b""))
check("the embedded model too", run(*ONE, "--raw", OV, "llama.attention.layer_norm_rms_epsilon=float:9").stdout not in (want, b""))
check("the vocabulary heeds it", run("tokenize", "-m", tiny, "Once", "--json", OV, "tokenizer.ggml.add_bos_token=bool:false").stdout == b"[696]\n")
check("bench heeds it", "missing" in run("bench", "-m", tiny, "-p", "1", "-n", "0", "-r", "1", OV, "llama.block_count=int:5").stderr.decode())
check("a set heeds it", run("info", folder("set2", model.split(2))(2), "--keys", OV, "a.b=int:7").stdout.count(b"a.b i64 = 7 (overridden)") == 1)
for value, *words in [
    ("", "KEY=TYPE:VALUE"), ("a", "KEY=TYPE:VALUE"), ("a=int", "KEY=TYPE:VALUE"), ("=int:1", "KEY=TYPE:VALUE"), ("a:int=1", "KEY=TYPE:VALUE"),
    ("a=u32:1", "'a'", "'u32'", "int, float, bool, str"), ("a=:1", "''", "int, float, bool, str"), ("a=int:", "'a'", "whole number"),
    ("a=int:1.5", "'1.5'", "whole number"), ("a=int:9223372036854775808", "whole number"), ("a=int:0x10", "whole number"), ("a=float:x", "a number"),
    ("a=float:inf", "a number"), ("a=float:1e999", "a number"), ("a=bool:1", "true or false"), ("a=bool:True", "true or false"),
    ("llama.context_length=float:4096", "'llama.context_length'", "float", "u32", "expected int"),
    ("llama.context_length=str:4096", "'llama.context_length'", "str", "u32", "expected int"),
    ("llama.context_length=int:-1", "'llama.context_length'", "-1", "u32"), ("llama.context_length=int:4294967296", "4294967296", "u32"),
    ("llama.rope.freq_base=int:10000", "'llama.rope.freq_base'", "int", "f32", "expected float"), ("llama.rope.freq_base=float:1e39", "f32"),
    ("general.architecture=bool:true", "'general.architecture'", "bool", "str", "expected str"), ("tokenizer.ggml.tokens=str:a", "array"),
    ("general.alignment=int:64", "'general.alignment'"), ("split.count=int:2", "'split.count'"), ("\x1b=int:x", "\\x1b"),
]:
    for args in (["-m", tiny, *ONE], ["info", tiny]):
        check_error(f"{OV} {value!r}: {args[0]}", run(*args, OV, value), 2, OV, *words)
check_error("a new key of the wrong type", run("-m", tiny, *ONE, OV, "llama.attention.key_length=float:32"), 3, "llama.attention.key_length", "f64", "integer")
check_error("a value that makes no model", run("-m", tiny, *ONE, OV, "llama.attention.head_count=int:7"), 3, "llama.attention.head_count", "7")
check_error("an unknown architecture", run("-m", tiny, *ONE, OV, "general.architecture=str:nosuch"), 3, "nosuch")
finish()
