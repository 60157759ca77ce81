"""Rows 25 to 39: using up memory, processes, disk, output and time."""

from __future__ import annotations

from dataclasses import replace

from attack_row import HASTY, SMALL, Attack, Target, closed, status

from rollouts.sandbox.model import Result

_FILL = """\
def fill(directory, megabytes):
    for i in range(megabytes):
        with open(f"{directory}/{MARKER}{i}", "wb") as f: f.write(bytes(1 << 20))
    time.sleep(0.5)
def clean(directory):
    for i in range(64):
        try: os.unlink(f"{directory}/{MARKER}{i}")
        except OSError: pass
"""


def _drained(result: Result, target: Target) -> bool:
    """All output was counted, little was kept, and the code ran to its end."""
    kept = len(result.stdout) <= SMALL.output_kb * 1024 + 100
    return result.status == "ok" and result.stdout_bytes == 20 << 20 and kept


ROWS = (
    Attack(
        25,
        "fork bomb",
        "count = 0\n"
        "try:\n"
        "    while count < 80:\n"
        "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "        count += 1\n"
        "except OSError: pass\n"
        "if count >= 64: opened()",
    ),
    Attack(
        26,
        "thread bomb",
        "import threading\n"
        "count = 0\n"
        "try:\n"
        "    while count < 80:\n"
        "        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\n"
        "        count += 1\n"
        "except RuntimeError: pass\n"
        "if count >= 64: opened()\n"
        "os._exit(0)",
    ),
    Attack(27, "too much memory in one process", "x = bytearray(300 << 20)\nopened()"),
    Attack(
        28,
        "too much memory over several processes",
        "r, w = os.pipe()\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(100 << 20)\n"
        "        for at in range(0, len(x), 4096): x[at] = 1\n"
        '        os.write(w, b"x")\n'
        "        time.sleep(20)\n"
        "for _ in range(6): os.read(r, 1)\n"
        "time.sleep(0.5)\n"
        "opened()",
        status("memory", "timeout"),
    ),
    Attack(
        29,
        "fill /dev/shm",
        _FILL + 'try: fill("/dev/shm", 16)\nexcept OSError: clean("/dev/shm")\n'
        'else: clean("/dev/shm"); opened()',
    ),
    Attack(
        30,
        "leave a file in /dev/shm",
        'try: open(f"/dev/shm/{MARKER}", "w").write("x")\nexcept OSError: pass',
    ),
    Attack(
        31,
        "fill the work directory",
        _FILL + 'fill(".", 20)\nopened()',
        status("disk", "error"),
    ),
    Attack(
        32,
        "fill /tmp",
        _FILL + "import tempfile\n"
        'for top in ("/tmp", tempfile.gettempdir()):\n'
        "    try: fill(top, 20)\n"
        "    except OSError: clean(top)\n"
        "    else: clean(top); opened()",
    ),
    Attack(
        33,
        "too many files",
        'for i in range(1500): open(f"f{i}", "w").close()\ntime.sleep(0.5)\nopened()',
        status("disk", "error"),
    ),
    Attack(
        34,
        "1 TB sparse prediction.csv",
        'with open("prediction.csv", "wb") as f:\n'
        "    try: f.truncate(1 << 40)\n"
        "    except OSError: pass\n"
        "    try: f.truncate(6 << 20)\n"
        "    except OSError: pass",
        lambda r, _: r.status in ("ok", "disk") and "prediction.csv" not in r.files,
        replace(SMALL, fetch_mb=4),
        ("prediction.csv",),
    ),
    Attack(
        35,
        "20 MB of stdout",
        'for _ in range(20): sys.stdout.write("x" * (1 << 20))',
        _drained,
    ),
    Attack(
        36,
        "close stdout/stderr, go on",
        'os.close(1); os.close(2)\ntime.sleep(0.2)\nopen("done", "w").write("yes")\nos._exit(0)',
        lambda r, _: r.status == "ok" and r.files.get("done") == b"yes",
        fetch=("done",),
    ),
    Attack(
        37,
        "busy loop, all signals blocked",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        status("timeout"),
        HASTY,
    ),
    Attack(38, "sleep for ever", "time.sleep(1e6)", status("timeout"), HASTY),
    Attack(
        39,
        "double-fork daemon outlives the call",
        "if os.fork() == 0:\n"
        "    try: os.setsid()\n"
        "    except OSError: pass\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(1e6)\n"
        "    os._exit(0)\n"
        'print("started")',
        lambda r, t: closed(r, t) and r.status == "ok",
    ),
)
