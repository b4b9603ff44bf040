#!/usr/bin/env python3
"""stdin, stdout, stderr, signals: pipelines get exact bytes and nothing else. Usage: streams.py GGRUN"""
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
from common import *

GREEDY = ["--temp", "0", "-n", "8", "--raw"]
STORY = "Once upon a time"
want = run("-p", STORY, *GREEDY).stdout
check("an answer", want.endswith(b"\n") and len(want) > 10, want)


def path(name):
    return os.path.join(tmp, name)


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data)
    return path(name)


# ---- where the text comes from: all ways give the same bytes ----
story = write("story.txt", STORY.encode())
for what, args, stdin in [
    ("word", [STORY], b"x"), ("-p", ["-p", STORY], b"x"), ("-f", ["-f", story], b"x"), ("-f -", ["-f", "-"], STORY.encode()),
    ("-", ["-"], STORY.encode()), ("stdin", [], STORY.encode()), ("/dev/stdin", ["-f", "/dev/stdin"], STORY.encode()),
    ("after --", ["--", STORY], b""), ("run", ["run", STORY], b""),
]:
    args = ["run", *GREEDY, *args[1:]] if args[:1] == ["run"] else GREEDY + args
    r = run(*args, stdin=stdin)
    check(what, r.returncode == 0 and r.stdout == want, r)

fifo = path("fifo")
os.mkfifo(fifo)


def feed():
    with open(fifo, "wb", buffering=0) as f:
        for c in STORY.encode():
            f.write(bytes([c]))
            time.sleep(0.005)


t = threading.Thread(target=feed)
t.start()
check("fifo to its end", run(*GREEDY, "-f", fifo).stdout == want)
t.join()

check_error("missing file", run("-f", path("none")), 1, "none")
check_error("directory", run("-f", tmp), 1, "directory")
check_error("empty text file raw, -c 1 fits", run("-p", "a b c d e f g", "-c", "4"), 2, "tokens", "4")
r = run("-p", "", "--temp", "0", "-n", "4")
check("empty text starts from BOS", r.returncode == 0 and r.stdout, r)
check_error("empty request", run("--chat", ""), 2, "empty")
for args in (["--chat"], []):
    r = run(*args, stdin=b"")
    check(f"end of input {args}", r.returncode == 0 and not r.stdout, r)

# Exact bytes: a newline, NUL, invalid UTF-8 are text like any other.
for data in (b"a\n", b"\0", b"a\0b", b"\xe2\x82", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", bytes(range(256)), b"\r\n\t "):
    f = write("bytes", data)
    ids = run("tokenize", "-f", f, "--json").stdout
    back = run("tokenize", "--decode", stdin=ids)
    check(f"round trip {data[:8]}", back.returncode == 0 and back.stdout == data, back)
    check(f"run {data[:8]}", run("-f", f, *GREEDY).returncode == 0)
texts = [write("t1", b"One\n"), write("t2", b""), write("t3", b"two")]
r = run("tokenize", *sum((["-f", t] for t in texts), []), "--json", "--no-bos")
check("one array per -f", len(r.stdout.splitlines()) == 3 and r.stdout.splitlines()[1] == b"[]", r)
big = write("big", STORY.encode() * 200000)  # 3 MB
check_error("3 MB are no prompt for 512 tokens", run("-f", big), 2, "512", "tokens")

# A model path of any bytes.
for name in (b"\xd0\xbc\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c.gguf", b"a b\nc.gguf", b"x\xff.gguf", b"-m.gguf"):
    p = os.path.join(tmp.encode(), name)
    os.symlink(tiny, p)
    r = run("-m", p, "-p", STORY, *GREEDY)
    check(f"model path {name}", r.returncode == 0 and r.stdout == want, r)
    r = run("info", "--json", "-m", p)
    r.stdout.decode("utf-8")  # valid UTF-8 whatever the name
r = run("-m", os.path.join(tmp.encode(), b"no\n\xff.gguf"), "-p", "a")
check_error("missing path with odd bytes", r, 1, "no\\n\\xff.gguf")

# ---- stdout is the answer alone; stderr the rest; nothing for a terminal in either ----
for extra in ([], ["-q"], ["--stats"], ["-v"], ["--sched-debug=2", "--alloc-debug", "--exec-debug"]):
    for env in ({}, {"TERM": "xterm"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}):
        r = run("-p", STORY, *GREEDY, *extra, env=env)
        check(f"stdout with {extra}", r.stdout == want, r)
        check(f"escape codes with {extra}", b"\x1b" not in r.stdout + r.stderr and b"\r" not in r.stdout + r.stderr, r.stderr)
check("-q is quiet", run("-p", STORY, *GREEDY, "-q").stderr == b"")
check("the embedded model is named", b"embedded" in run("-p", STORY, *GREEDY).stderr)
check("with -m it is not", run("-m", tiny, "-p", STORY, *GREEDY).stderr == b"")
stats = dict(l.split() for l in run("-p", STORY, *GREEDY, "-q", "--stats").stderr.decode().splitlines())
check("stats", stats.get("tokens_generated") == "8" and {"graphs_built", "graphs_reused", "regrows", "tokens_per_second", "kv_bytes",
      "sum_of_intermediates_bytes", "peak_compute_bytes", "tokens_prompt"} <= set(stats), stats)

# ---- a reader that goes away, a full disk ----
p = subprocess.Popen([ggrun, "-p", STORY, "--ignore-eos", "-n", "400", "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdout.read(5)
p.stdout.close()
check("EPIPE", p.wait(60) == 0 and p.stderr.read() == b"")
for args in (["-p", STORY, "-n", "4"], ["info"], ["tokenize", "a"], ["--help"], ["logits", "a", "--json"], ["bench", "-p", "4", "-n", "0", "-r", "1"]):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([ggrun, *args], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    check(f"/dev/full {args}", r.returncode == 1 and len(messages(r)) == 1 and b"stdout" in r.stderr, r)

out = os.path.join(tmp, "out.f32")
for closed, args, code in (("<&-", ["-p", STORY, *GREEDY], 0), (">&-", ["-p", STORY, *GREEDY], 1), ("2>&-", ["-p", STORY, *GREEDY], 0),
                           (">&-", ["logits", "--ids", "1", "-o", out], 0), (">&-", ["logits", "--ids", "1", "-o", out, "--json"], 1)):
    r = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", ggrun, *args], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    check(f"{closed} {args}", r.returncode == code and (code or closed == ">&-" or r.stdout == want), r)
    check("no file of another's bytes", not os.path.exists(out) or os.path.getsize(out) == 4096)

# ---- the context limit ----
r = run("-p", STORY, "-c", "24", "--ignore-eos", "--temp", "0")
check("context limit", r.returncode == 5 and len(r.stdout) > 10 and "context limit of 24" in messages(r)[0], r)
r = run("-p", STORY, "-n", "3", "-c", "24", "--ignore-eos")
check("-n before the limit", r.returncode == 0, r)

# ---- signals ----
def interrupted(what, args, sig, wait, code, stdin=subprocess.DEVNULL):
    p = subprocess.Popen([ggrun, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin)
    got = wait(p)
    start = time.monotonic()
    p.send_signal(sig)
    try:
        out, err = p.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        check(what, False, "did not stop")
        return
    took = time.monotonic() - start
    out = got + out
    check(what, p.returncode == code and took < SLOW, p.returncode, took, err)
    out.decode("utf-8")
    return out, err


SLOW = 15 if subprocess.run(["grep", "-q", "__asan_init", ggrun]).returncode == 0 else 5  # a second on a quiet machine


def some_output(p):
    return os.read(p.stdout.fileno(), 1)


endless = ["-p", STORY, "--ignore-eos", "-n", "500"]
for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
    out, err = interrupted(f"{sig.name} in decode", endless + ["--stats"], sig, some_output, code)
    check("the text so far is flushed", len(out) > 1 and out.endswith(b"\n"), out)
    check("statistics are printed", b"tokens_generated" in err, err)
r, w = os.pipe()
interrupted("SIGINT while stdin is read", ["-"], signal.SIGINT, lambda p: time.sleep(0.5) or b"", 130, stdin=r)
fifo2 = path("fifo2")
os.mkfifo(fifo2)
interrupted("SIGTERM while a FIFO is opened", ["-f", fifo2], signal.SIGTERM, lambda p: time.sleep(0.5) or b"", 143)
long_text = write("long", b"The brave mouse lived in the valley. " * 2500)
interrupted("SIGINT in a long prompt", ["-m", tiny, "-f", long_text, "-c", "60000", "-n", "1"], signal.SIGINT,
            lambda p: time.sleep(0.7) or b"", 130)

# ---- a terminal: progress appears there, and is wiped out again ----
def in_terminal(args, term, timeout=60):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = term
        os.execv(ggrun, [ggrun, *args])
    data = b""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(fd, 65536)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), data


slow = ["-m", tiny, "-f", write("slow", b"The brave mouse lived in the valley. " * 60), "-c", "2000", "-b", "32", "-n", "1", "-t", "1",
        "--isa", "scalar"]
if have_terminal():
    code, data = in_terminal(slow, "xterm")
    check("a bar on a terminal", code == 0 and b"prompt" in data and b"#" in data and b"\r" in data, code, data[:300])
    code, data = in_terminal(slow, "dumb")
    check("no bar on a dumb one", code == 0 and b"#" not in data and b"\x1b" not in data, code, data[:300])
    code, data = in_terminal([], "xterm")
    check("no text on a terminal", code == 2 and b"no text is given" in data, code, data)
finish()
