# ruff: noqa: E501 - attempts are code in strings
"""Rows that came after: ways to lose a result rather than to forge one, and what was left untried.

A lost result counts as an infrastructure failure, never as a zero, so losing one would pay.
"""

from __future__ import annotations

from dataclasses import replace

from attack_row import HASTY, SMALL, Attack, Target, closed, status

from rollouts.sandbox.model import Result


def _answered(result: Result, target: Target) -> bool:
    """The code's own result came back, with the file that it wrote last."""
    return closed(result, target) and result.status == "ok" and result.files.get("z") == b"1"


def _ended(result: Result, target: Target) -> bool:
    return closed(result, target) and result.status in ("ok", "error", "timeout", "memory", "disk")


ROWS = (
    Attack(
        93,
        "lose the result: an answer too long to send",
        'open("z", "w").write("1")\n'
        'for i in range(3500): open(f"{i:05}" + "\\x01" * 245, "w").close()',
        _answered,
        replace(SMALL, work_files=4000),
        ("z", "*"),
    ),
    Attack(
        94,
        "lose the result: shut the directory that it is read from",
        "import tempfile\n"
        'open("z", "w").write("1"); open("a", "w").write("1"); os.chmod("a", 0)\n'
        'os.mkdir("d", 0)\nos.chmod(tempfile.gettempdir(), 0)\nos.chmod(".", 0)',
        _ended,
        fetch=("*", "z", "a", "d"),
    ),
    Attack(
        95,
        "lose the result: names that are no text",
        'open("z", "w").write("1")\n'
        'for name in (b"\\xff\\xfe", b"a\\nb", b"\\x1b[2J", b"-rf", b"\\xe2\\x80\\xae", b" ", b"\\\\"):\n'
        '    open(name, "w").write("x")\n'
        'os.symlink("loop", "loop"); os.symlink("z", "link"); os.mkfifo("fifo")\n'
        "import socket\n"
        'try: socket.socket(socket.AF_UNIX).bind("sock")\n'
        "except OSError: pass",
        _answered,
        fetch=("*", "z", "loop", "link", "fifo", "sock"),
    ),
    Attack(
        96,
        "use up the descriptors in flight",
        "import array, socket\n"
        "keep, count = [], 0\n"
        "try:\n"
        "    for _ in range(40):\n"
        "        a, b = socket.socketpair(); keep.append((a, b))\n"
        '        fds = array.array("i", [0] * 200)\n'
        "        for _ in range(20):\n"
        '            a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]); count += 200\n'
        "except OSError: pass\n"
        'open("z", "w").write("1")\n'
        "if count > 4000: opened()",
        _answered,
        fetch=("z",),
    ),
    Attack(
        97,
        "page tables of one small file mapped thousands of times",
        'f = open("f", "wb+"); f.write(bytes(6 << 20)); f.flush()\n'
        "m = _libc.mmap\n"
        "m.restype, m.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
        "for _ in range(45000):\n"
        "    if m(None, 6 << 20, 1, 0x8001, f.fileno(), 0) in (None, (1 << 64) - 1): break\n"
        "else: time.sleep(1); opened()",
        status("memory", "timeout"),
        replace(SMALL, wall_s=3),
    ),
    Attack(
        98,
        "a chain of processes, each born as the last one ends",
        "if os.fork() == 0:\n"
        "    while True:\n"
        "        if os.fork(): os._exit(0)\n"
        "        try: os.setsid()\n"
        "        except OSError: pass\n"
        'time.sleep(0.3); open("z", "w").write("1")',
        _answered,
        fetch=("z",),
    ),
    Attack(
        99,
        "stop instead of ending",
        "import signal\n"
        "if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)",
        status("timeout"),
        HASTY,
    ),
    Attack(
        100,
        "every family of sockets",
        "import socket\n"
        "for family in range(2, 46):\n"
        "    for kind in (1, 2, 3, 5):\n"
        "        try: socket.socket(family, kind)\n"
        "        except OSError: continue\n"
        "        opened()",
    ),
    Attack(
        101,
        "tamper with the clock, finer calls",
        "buffer = ctypes.create_string_buffer(512)\n"
        'refused("adjtimex", buffer)\nrefused("clock_adjtime", 0, buffer)\n'
        'refused("settimeofday", None, None)\nrefused("clock_settime", 0, None)',
    ),
    Attack(
        102,
        "init's own files in /proc",
        "for pid in {1, os.getppid()} - {os.getpid()}:\n"
        '    for name in ("environ", "maps", "mem", "auxv", "syscall", "stack", "io"):\n'
        '        tries(lambda: open(f"/proc/{pid}/{name}", "rb").read(1))\n'
        '    tries(lambda: os.listdir(f"/proc/{pid}/fd"), lambda: os.readlink(f"/proc/{pid}/exe"),\n'
        '          lambda: os.listdir(f"/proc/{pid}/root/"), lambda: os.listdir(f"/proc/{pid}/cwd/"),\n'
        '          lambda: os.listdir(f"/proc/{pid}/map_files"))',
    ),
    Attack(
        103,
        "type into the terminal",
        "import fcntl\n"
        "for fd in (0, 1, 2):\n"
        '    tries(lambda: fcntl.ioctl(fd, 0x5412, b"x"), lambda: fcntl.ioctl(fd, 0x541C, b"\\2"),\n'
        "          lambda: fcntl.ioctl(fd, 0x540E, 0))\n"
        'tries(lambda: open("/dev/tty"), lambda: os.open("/dev/ptmx", os.O_RDWR),\n'
        '      lambda: os.listdir("/dev/pts"))',
    ),
    Attack(
        104,
        "a core dump through the node's own handler",
        "import resource\n"
        "tries(lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096)))\n"
        "if resource.getrlimit(resource.RLIMIT_CORE) != (1, 1): opened()",
    ),
    Attack(
        105,
        "named shared memory and semaphores left for the next call",
        "from multiprocessing import shared_memory, resource_tracker\n"
        "try:\n"
        "    m = shared_memory.SharedMemory(MARKER, create=True, size=4096)\n"
        '    resource_tracker.unregister(m._name, "shared_memory")\n'
        "except OSError: pass\n"
        "sem = ctypes.CDLL(None).sem_open\n"
        'sem(("/" + MARKER).encode(), os.O_CREAT, 0o600, 1)',
    ),
    Attack(
        106,
        "write to the running interpreter and to what is mapped from it",
        'tries(lambda: open("/proc/self/exe", "r+b"), lambda: open(sys.executable, "r+b"),\n'
        '      lambda: open(os.__file__, "r+b"), lambda: os.truncate(os.__file__, 0),\n'
        "      lambda: os.utime(os.__file__), lambda: os.chmod(os.__file__, 0o777))",
    ),
    Attack(
        107,
        "loosen what was closed (secure bits, ambient, mm, subreaper, another filter)",
        "for option in (8, 22, 24, 28, 35, 36, 47, 53, 59, 61, 62):\n"
        '    if call("prctl", option, 1, 1, 0, 0)[0] == 0: opened()\n'
        'refused("landlock_restrict_self", -1, 0)\nrefused("seccomp", 0, 0, None)',
    ),
    Attack(
        108,
        "memory of other processes by newer calls (process_madvise, pidfd, mrelease)",
        "pid = os.getppid()\n"
        'refused("process_madvise", -1, None, 0, 0, 0)\nrefused("process_mrelease", -1, 0)\n'
        'refused("process_vm_writev", pid, None, 0, None, 0, 0)\n'
        'refused("pidfd_getfd", -1, 0, 0)\nrefused("kcmp", pid, pid, 0, 0, 0)',
    ),
    Attack(
        109,
        "flood from many writers at once",
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        for _ in range(40): os.write(1, bytes(65536)); os.write(2, bytes(65536))\n"
        "        os._exit(0)\n"
        "for _ in range(8): os.wait()\n"
        'open("z", "w").write("1")',
        lambda r, t: _answered(r, t) and r.stdout_bytes == r.stderr_bytes == 8 * 40 * 65536,
        fetch=("z",),
    ),
    Attack(
        110,
        "end the call from a thread while another still works",
        "import threading\n"
        "def work():\n"
        "    while True: pass\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        'open("z", "w").write("1")\n'
        "threading.Thread(target=lambda: os._exit(0)).start()\n"
        "time.sleep(60)",
        _answered,
        fetch=("z",),
    ),
)
