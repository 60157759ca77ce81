# ruff: noqa: E501 - attempts are code in strings
"""Rows that go round a limit rather than through it, and more ways to lose a result."""

from __future__ import annotations

from dataclasses import replace

from attack_row import SMALL, Attack, Target, closed, status

from rollouts.sandbox.model import Result

_MMAP = """\
m = _libc.mmap
m.restype, m.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
FAILED = (None, (1 << 64) - 1)
"""
_HOLD = "time.sleep(1)\nopened()"
_MEMORY = status("memory", "timeout", "error")
_DISK = status("disk", "error")


def _failed(result: Result, target: Target) -> bool:
    return closed(result, target) and result.status in ("error", "memory")


ROWS = (
    Attack(
        111,
        "shared memory, a little in each of many processes",
        "import mmap\n"
        "r, w = os.pipe()\n"
        "for _ in range(28):\n"
        "    if os.fork() == 0:\n"
        "        m = mmap.mmap(-1, 20 << 20)\n"
        "        for at in range(0, len(m), 4096): m[at] = 1\n"
        '        os.write(w, b"x"); time.sleep(20)\n'
        "os.close(w)\n"
        "for _ in range(28):\n"
        "    if not os.read(r, 1): sys.exit(1)\n" + _HOLD,
        _MEMORY,
    ),
    Attack(
        112,
        "shared memory of which one page stays mapped",
        _MMAP + "for size in (16 << 20, 65536):\n"
        "    for _ in range((600 << 20) // size):\n"
        "        at = m(None, size, 3, 0x21, -1, 0)\n"
        "        if at in FAILED: break\n"
        "        ctypes.memset(at, 1, size); _libc.munmap(at + 4096, size - 4096)\n"
        "    else: break\n"
        "else: sys.exit(1)\n" + _HOLD,
        _MEMORY,
    ),
    Attack(
        113,
        "the same of /dev/zero",
        _MMAP + 'try: zero = os.open("/dev/zero", os.O_RDWR)\n'
        "except OSError: sys.exit(1)\n"
        "for _ in range(40):\n"
        "    at = m(None, 16 << 20, 3, 1, zero, 0)\n"
        "    if at in FAILED: sys.exit(1)\n"
        "    ctypes.memset(at, 1, 16 << 20); _libc.munmap(at + 4096, (16 << 20) - 4096)\n" + _HOLD,
        _MEMORY,
    ),
    Attack(
        114,
        "unread data in sockets with enlarged buffers",
        "import socket\n"
        "keep, queued = [], 0\n"
        "for _ in range(50):\n"
        "    keep.append(socket.socketpair())\n"
        "    for end in keep[-1]:\n"
        "        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20); end.setblocking(False)\n"
        "        try:\n"
        "            while True: queued += end.send(bytes(1 << 16))\n"
        "        except BlockingIOError: pass\n"
        "if queued < 300 << 20: sys.exit(1)\n" + _HOLD,
        _MEMORY,
    ),
    Attack(
        115,
        "unread data of clients that wait at a server",
        "import socket\n"
        "server = socket.socket(socket.AF_UNIX); server.bind('s'); server.listen(4096)\n"
        "for _ in range(2000):\n"
        "    client = socket.socket(socket.AF_UNIX); client.setblocking(False)\n"
        "    try: client.connect('s')\n"
        "    except BlockingIOError: sys.exit(1)\n"
        "    try:\n"
        "        while True: client.send(bytes(1 << 16))\n"
        "    except BlockingIOError: pass\n"
        "    client.close()\n" + _HOLD,
        _MEMORY,
    ),
    Attack(
        116,
        "unread data in sockets that no process has open",
        "import array, socket\n"
        "a, b = socket.socketpair()\n"
        "for _ in range(40):\n"
        "    pair = socket.socketpair()\n"
        '    fds = array.array("i", [end.fileno() for end in pair])\n'
        '    tries(lambda: a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]))',
    ),
    Attack(
        117,
        "urgent data and socket filters",
        "import socket\n"
        "a, b = socket.socketpair()\n"
        'tries(lambda: a.send(b"x", socket.MSG_OOB), lambda: a.recv(1, socket.MSG_OOB),\n'
        "      lambda: a.setsockopt(socket.SOL_SOCKET, 26, bytes(16)), lambda: a.setsockopt(socket.SOL_SOCKET, 50, 0))",
    ),
    Attack(
        118,
        "locks on a file, tens of thousands",
        "import fcntl\n"
        'with open("f", "wb") as file:\n'
        "    for at in range(60000):\n"
        "        fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)\n"
        "    time.sleep(2)\n"
        "opened()",
        _MEMORY,
    ),
    Attack(
        119,
        "lose the result: more mappings than can be looked at",
        _MMAP + "for _ in range(40):\n"
        "    if os.fork() == 0:\n"
        "        for i in range(60000): m(None, 4096, 0 if i % 2 else 1, 0x22, -1, 0)\n"
        "        time.sleep(60)\n"
        "time.sleep(60)",
        status("timeout", "memory"),
        replace(SMALL, processes=64, wall_s=6, total_mb=2048),
    ),
    Attack(
        120,
        "lose the result: source that breaks the compiler",
        'open("next.py", "w").write("-" * 200000 + "1")\n'
        'os.execv(sys.executable, [sys.executable, "next.py"])',
        _failed,
    ),
    Attack(
        121,
        "a child that belongs to somebody else (CLONE_PARENT)",
        'refused("clone", 0x8000 | 17, None, None, None, 0)',
    ),
    Attack(
        122,
        "a timer with a signal of its choice",
        "event = (ctypes.c_int * 16)(0, 0, 18, 0)\n"
        'refused("timer_create", 1, ctypes.byref(event), ctypes.byref(ctypes.c_int()))',
    ),
    Attack(
        123,
        "more processor time by more processes",
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        try: os.setsid()\n"
        "        except OSError: pass\n"
        "        while True: pass\n"
        "time.sleep(60)",
        status("timeout"),
        replace(SMALL, wall_s=60, cpu_s=1),
    ),
    Attack(
        124,
        "a share of the processors of its own (setsid)",
        'if os.fork() == 0: refused("setsid"); os._exit(0)\nos.wait()',
    ),
    Attack(
        125,
        "fill the disk through descriptors in a directory that is shut",
        'os.mkdir("d")\n'
        'files = [open(f"d/{i}", "wb") for i in range(5)]\n'
        'os.chmod("d", 0)\n'
        "for file in files: file.write(bytes(4 << 20)); file.flush()\n" + _HOLD,
        _DISK,
    ),
    Attack(
        126,
        "fill the disk below names that are too long",
        'for _ in range(60): os.mkdir("d" * 200); os.chdir("d" * 200)\n'
        'for i in range(5): open(str(i), "wb").write(bytes(4 << 20))\n' + _HOLD,
        _DISK,
    ),
    Attack(
        127,
        "fill the disk with files that only one mapped page keeps",
        _MMAP + "for i in range(5):\n"
        '    with open("f", "w+b") as file:\n'
        "        file.write(bytes(4 << 20)); file.flush(); m(None, 4096, 1, 2, file.fileno(), 0)\n"
        '    os.unlink("f")\n' + _HOLD,
        _DISK,
    ),
    Attack(
        128,
        "a service and a FIFO of the host in a shared directory",
        "import socket\n"
        'for top in ("lake/", ""):\n'
        "    tries(lambda: socket.socket(socket.AF_UNIX).connect(top + 'service'),\n"
        "          lambda: os.open(top + 'fifo', os.O_WRONLY | os.O_NONBLOCK))",
        shared="lake",
    ),
)
