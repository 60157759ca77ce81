"""Rows 40 to 52: the path of the results, and writing where others will read."""

from __future__ import annotations

from attack_row import Attack, Target, closed

from rollouts.sandbox.model import Result

_CSV = ("prediction.csv",)


def _not_taken(result: Result, target: Target) -> bool:
    return closed(result, target) and "prediction.csv" not in result.files


ROWS = (
    Attack(
        40,
        "daemon swaps prediction.csv for a link",
        'open("prediction.csv", "w").write("a")\n'
        "if os.fork() == 0:\n"
        "    try: os.setsid()\n"
        "    except OSError: pass\n"
        "    while True:\n"
        "        try:\n"
        '            os.symlink(GOLD, "link"); os.rename("link", "prediction.csv")\n'
        '            open("plain", "w").write("a"); os.rename("plain", "prediction.csv")\n'
        "        except OSError: pass\n"
        "time.sleep(0.1)",
        fetch=_CSV,
    ),
    Attack(
        41,
        "prediction.csv -> gold (symlink)",
        'os.symlink(GOLD, "prediction.csv")',
        _not_taken,
        fetch=_CSV,
    ),
    Attack(
        42,
        "hard link to gold",
        'try: os.link(GOLD, "prediction.csv")\n'
        'except OSError: open("a", "w").write("x"); os.link("a", "prediction.csv")',
        _not_taken,
        fetch=_CSV,
    ),
    Attack(
        43,
        "symlinked directory component",
        'os.symlink(DIRECTORY, "out")\nos.symlink("/proc/self", "self")',
        lambda r, t: closed(r, t) and not r.files,
        fetch=("out", "self"),
    ),
    Attack(44, "prediction.csv is a FIFO", 'os.mkfifo("prediction.csv")', _not_taken, fetch=_CSV),
    Attack(
        45, "prediction.csv is a directory", 'os.mkdir("prediction.csv")', _not_taken, fetch=_CSV
    ),
    Attack(
        46,
        "write outside the work directory",
        'tries(lambda: open(f"{DIRECTORY}/{MARKER}", "w"), lambda: open(GOLD, "a"),\n'
        '      lambda: os.unlink(GOLD), lambda: os.rename(GOLD, GOLD + ".x"))',
    ),
    Attack(
        47,
        "write to ..",
        'tries(lambda: open(f"../{MARKER}", "w"), lambda: os.mkdir(f"../{MARKER}d"),\n'
        '      lambda: open(f"/{MARKER}", "w"))',
    ),
    Attack(
        48,
        "poison the scorer (.pth, sitecustomize)",
        'tries(lambda: open(f"{DIRECTORY}/sitecustomize.py", "w"),\n'
        '      lambda: open(f"{DIRECTORY}/{MARKER}.pth", "w"))',
    ),
    Attack(
        49,
        ".pth in the interpreter prefix",
        "import sysconfig\n"
        "def write():\n"
        '    path = sysconfig.get_paths()["purelib"] + f"/{MARKER}.pth"\n'
        '    open(path, "w").close(); os.unlink(path)\n'
        'tries(write, lambda: open(os.__file__, "a"), lambda: open(sys.executable, "ab"))',
    ),
    Attack(
        50,
        "read / edit $HOME",
        'tries(lambda: print(open(f"{HOME}/.profile").read()),\n'
        '      lambda: open(f"{HOME}/.profile", "a"), lambda: os.listdir(HOME))',
    ),
    Attack(
        51,
        "make a set-uid file",
        'open("f", "w").close()\n'
        'os.open("g", os.O_CREAT | os.O_RDONLY, 0o755)\n'
        "def late():\n"
        '    fd = os.open("h", os.O_CREAT | os.O_RDWR, 0o700); os.fchmod(fd, 0o6755)\n'
        'tries(lambda: os.chmod("f", 0o4755), lambda: os.chmod("f", 0o2755), late,\n'
        '      lambda: os.open("i", os.O_CREAT | os.O_RDONLY, 0o4755),\n'
        '      lambda: os.mknod("j", 0o4755))\n'
        'refused("fchmodat2", -100, b"f", 0o4755, 0)',
    ),
    Attack(
        52,
        "gain by set-uid programs",
        'if call("prctl", 39, 0, 0, 0, 0)[0] != 1: opened()',
    ),
)
