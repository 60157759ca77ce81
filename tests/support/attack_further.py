"""Rows beyond the published table: each stands for a class that the layers must close."""

from __future__ import annotations

from attack_row import SMALL, Attack, status

ROWS = (
    Attack(
        81,
        "end init through its limits (prlimit)",
        "import resource\n"
        "for pid in (1, os.getppid()):\n"
        "    for kind, value in ((0, (0, 0)), (7, (0, 0)), (6, (0, 0))):\n"
        "        tries(lambda: resource.prlimit(pid, kind, value))\n"
        "for _ in range(200000): pass",
    ),
    Attack(
        82,
        "starve init (priority, affinity, scheduling class)",
        "parent = os.getppid()\n"
        "tries(lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),\n"
        "      lambda: os.setpriority(os.PRIO_USER, 0, 19),\n"
        "      lambda: os.setpriority(os.PRIO_PGRP, parent, 19),\n"
        "      lambda: os.sched_setaffinity(parent, {0}),\n"
        "      lambda: os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0)))\n"
        'refused("ioprio_set", 1, parent, 0x6007)\nrefused("migrate_pages", parent, 0, 0, 0)',
    ),
    Attack(
        83,
        "signals by descriptor owner (F_SETOWN, F_SETSIG)",
        "import fcntl, struct\n"
        "r, w = os.pipe()\n"
        "tries(lambda: fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid()),\n"
        "      lambda: fcntl.fcntl(r, 10, 9),\n"
        '      lambda: fcntl.fcntl(r, 15, struct.pack("ii", 1, os.getppid())),\n'
        '      lambda: fcntl.ioctl(r, 0x8901, struct.pack("i", os.getppid())))',
    ),
    Attack(
        84,
        "memory in unmapped shared pages",
        "import mmap\n"
        "keep = []\n"
        "for _ in range(6):\n"
        "    m = mmap.mmap(-1, 100 << 20)\n"
        "    for at in range(0, len(m), 4096): m[at] = 1\n"
        "    m.madvise(mmap.MADV_DONTNEED); keep.append(m)\n"
        "time.sleep(0.5)\n"
        "opened()",
        status("memory", "timeout"),
    ),
    Attack(
        85,
        "memory in unmapped files (memfd)",
        'tries(lambda: os.memfd_create("x"))\nrefused("memfd_secret", 0)',
    ),
    Attack(
        86,
        "memory behind a first thread that has exited",
        "import threading\n"
        "r, w = os.pipe()\n"
        "def hold():\n"
        "    x = bytearray(100 << 20)\n"
        "    for at in range(0, len(x), 4096): x[at] = 1\n"
        '    os.write(w, b"x")\n'
        "    time.sleep(20)\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        threading.Thread(target=hold).start()\n"
        "        ctypes.pythonapi.PyEval_SaveThread.restype = ctypes.c_void_p\n"
        "        ctypes.pythonapi.PyEval_SaveThread(); _libc.pthread_exit(None)\n"
        "for _ in range(6): os.read(r, 1)\n"
        "time.sleep(0.5)\n"
        "opened()",
        status("memory", "timeout", "error"),
    ),
    Attack(
        87,
        "reach named sockets from a datagram pair",
        "import socket as s\n"
        "def send(to):\n"
        "    a, b = s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)\n"
        '    a.sendto(b"x", to)\n'
        'tries(lambda: send(SOCKET + ".dgram"), lambda: send(ABSTRACT + "d"))\n'
        "a, b = s.socketpair()\n"
        "tries(lambda: a.connect(SOCKET), lambda: a.connect(ABSTRACT))",
    ),
    Attack(
        88,
        "node-wide counters (inotify, async I/O, pipes, fanotify)",
        'refused("inotify_init1", 0)\nrefused("fanotify_init", 0, 0)\n'
        'refused("io_setup", 1, ctypes.create_string_buffer(8))\n'
        "import fcntl\n"
        "r, w = os.pipe()\n"
        "tries(lambda: fcntl.fcntl(r, 1031, 1 << 20))",
    ),
    Attack(
        89,
        "the big kernel interfaces (bpf, perf, userfaultfd, modules, handles)",
        'refused("bpf", 0, None, 0)\nrefused("perf_event_open", None, 0, -1, -1, 0)\n'
        'refused("userfaultfd", 0)\nrefused("init_module", None, 0, b"")\n'
        'refused("finit_module", -1, b"", 0)\nrefused("open_by_handle_at", -1, None, 0)\n'
        'refused("kexec_load", 0, 0, None, 0)\nrefused("personality", 8)\n'
        'refused("seccomp", 1, 0, None)\nrefused("quotactl", 0, None, 0, None)\n'
        'refused("swapon", b"x", 0)\nrefused("reboot", 0, 0, 0, None)\n'
        'refused("kcmp", 1, 1, 0, 0, 0)\nrefused("vmsplice", -1, None, 0, 0)',
    ),
    Attack(
        90,
        "other identities (setuid family, capabilities)",
        "tries(lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),\n"
        "      lambda: os.setresuid(0, 0, 0), lambda: os.setreuid(0, 0))\n"
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "data = (ctypes.c_uint32 * 6)(0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0)\n"
        'if call("capset", header, data)[0] == 0: opened()',
    ),
    Attack(
        91,
        "hide from the watchdog (dumpable, unreadable program)",
        'if call("prctl", 4, 0, 0, 0, 0)[0] == 0: opened()',
    ),
    Attack(
        92,
        "fake the end: a parent that exits while its children work on",
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        '        while True: open("prediction.csv", "w").write("late")\n'
        'open("final", "w").write("1")\n'
        "os._exit(0)",
        lambda r, _: r.status == "ok" and r.files.get("final") == b"1",
        SMALL,
        ("final", "prediction.csv"),
    ),
)
