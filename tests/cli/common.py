"""What the scripts of this folder share: run ggrun, check, count failures."""
import atexit
import os
import pty
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ggrun = os.path.abspath(sys.argv[1])
source = os.environ.get("GGRUN_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "..", ".."))
tiny = os.path.join(source, "cli", "ggrun-tiny-q8_0.gguf")
tmp = tempfile.mkdtemp(dir=os.environ.get("GGRUN_TEST_TMP"))
atexit.register(shutil.rmtree, tmp, True)
sanitized = subprocess.run(["grep", "-qE", "__[at]san_init", ggrun]).returncode == 0
failures = []


def run(*args, stdin=b"", env=None, **kw):
    """One run; stdin is bytes (not a terminal). Result has returncode, stdout and stderr as bytes."""
    return subprocess.run([ggrun, *args], input=stdin, capture_output=True, timeout=600 if sanitized else 100,
                          env={**os.environ, **(env or {})}, **kw)


def check(what, ok, *shown):
    if not ok:
        failures.append(f"{what}: {' '.join(repr(s)[:400] for s in shown)}")


def messages(r):
    """Lines on stderr without warnings and the notes about the embedded model, the context and the cut."""
    return [l for l in r.stderr.decode("utf-8", "replace").splitlines()
            if not l.startswith(("ggrun: warning: ", "ggrun: no -m given", "ggrun: the context holds ", "ggrun: the prompt of ", "ggrun: -ngl auto: ", "ggrun: each of the "))]


def check_error(what, r, code, *words):
    """A clean error: the exit code, empty stdout, one line on stderr with all the words."""
    m = messages(r)
    ok = r.returncode == code and not r.stdout and len(m) == 1 and m[0].startswith("ggrun: ")
    check(what, ok and all(w in m[0] for w in words), r.returncode, r.stdout, m, words)


def check_ok(what, r):
    check(what, r.returncode == 0 and not messages(r), r.returncode, r.stdout, r.stderr)


def have_terminal():
    """Can a pseudo terminal be opened here? Some containers have none."""
    try:
        for fd in pty.openpty():
            os.close(fd)
        return True
    except OSError:
        print("no pseudo terminal can be opened here: the cases with a terminal are left out")
        return False


def finish():
    for f in failures[:30]:
        print(f)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)
