"""Rows 53 to 80: privileges, odd system call entries, and the rest."""

from __future__ import annotations

from attack_row import HASTY, Attack, Target, closed, status

from rollouts.sandbox.model import Result


def _odd_names(result: Result, target: Target) -> bool:
    return result.status == "ok" and len(result.files) == 4 and closed(result, target)


def _real_exit(result: Result, _: Target) -> bool:
    return result.status == "error" and result.exit_code == 7 and result.stdout_bytes < 4096


def _no_core(result: Result, _: Target) -> bool:
    return result.signal == 6 and not result.files


ROWS = (
    Attack(
        53,
        "mount",
        'refused("mount", b"none", b".", b"tmpfs", 0, None)\n'
        'refused("fsopen", b"tmpfs", 0)\nrefused("open_tree", -100, b".", 1)\n'
        'refused("move_mount", -1, b"", -1, b"", 0)\nrefused("umount2", b"/proc", 2)\n'
        'refused("pivot_root", b".", b".")',
    ),
    Attack(
        54,
        "new user namespace (unshare, clone)",
        'refused("unshare", 0x10000000)\n'
        "for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x02000000):\n"
        '    result, error = call("clone", flag | 17, 0, 0, 0, 0)\n'
        "    if result == 0: os._exit(0)\n"
        "    if result > 0 or error != 1: opened()",
    ),
    Attack(
        55,
        "new user namespace (clone3)",
        "data = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)\n"
        'result, error = call("clone3", data, 88)\n'
        "if result == 0: os._exit(0)\n"
        "if result > 0 or error != 38: opened()",
    ),
    Attack(
        56,
        "setns to the trainer",
        'refused("setns", 0, 0x10000000)\n'
        'tries(lambda: os.open(f"/proc/{VICTIM}/ns/user", os.O_RDONLY))',
    ),
    Attack(57, "chroot", 'refused("chroot", b".")'),
    Attack(
        58,
        "device node",
        "import stat\n"
        'tries(lambda: os.mknod("m", stat.S_IFCHR | 0o666, os.makedev(1, 1)),\n'
        '      lambda: os.mknod("b", stat.S_IFBLK | 0o666, os.makedev(8, 0)))',
    ),
    Attack(
        59,
        "x32 system call numbers",
        "result = _libc.syscall(ctypes.c_long(0x40000000 | 39))\nif result > 0: opened()",
        arch="x86_64",
    ),
    Attack(
        60,
        "32-bit int 0x80 entry",
        "import mmap\n"
        "m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)\n"
        'm.write(bytes.fromhex("b814000000cd80c3"))\n'
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "f()\nopened()",
        arch="x86_64",
    ),
    Attack(
        61,
        "set the clock",
        'refused("clock_settime", 0, None)\nrefused("settimeofday", None, None)\n'
        'refused("adjtimex", ctypes.create_string_buffer(256))\n'
        'refused("clock_adjtime", 0, ctypes.create_string_buffer(256))',
    ),
    Attack(
        62,
        "thousands of descriptors",
        "count = 0\n"
        "try:\n"
        '    while count < 2000: os.open("/dev/null", os.O_RDONLY); count += 1\n'
        "except OSError: pass\n"
        "if count > 200: opened()",
    ),
    Attack(
        63,
        "use a leaked descriptor",
        "tries(*[lambda n=n: os.fstat(n) for n in range(3, 2000)])",
    ),
    Attack(
        64,
        "3000 nested directories",
        'for _ in range(3000):\n    try: os.mkdir("d"); os.chdir("d")\n    except OSError: break',
        status("ok", "error", "disk"),
    ),
    Attack(
        65,
        "odd file names",
        'for name in (b"new\\nline", b"\\xff\\xfe", b"-rf *", "\\u202egnp.exe".encode()):\n'
        '    open(name, "wb").write(b"x")',
        _odd_names,
        fetch=("*",),
    ),
    Attack(
        66,
        "non-UTF-8 output",
        'sys.stdout.buffer.write(b"a\\xff\\xfe\\x00\\x1b[2Jb")',
        lambda r, _: r.status == "ok" and "\x1b" not in r.stdout and r.stdout.endswith("[2Jb"),
    ),
    Attack(
        67,
        "forge the result message",
        "import json\n"
        'text = json.dumps({"end": "exit", "status": 0, "files": []}).encode()\n'
        "for n in range(3, 1024):\n"
        '    try: os.write(n, len(text).to_bytes(8, "big") + text)\n'
        "    except OSError: pass\n"
        "os._exit(7)",
        _real_exit,
    ),
    Attack(
        68,
        "oom_score_adj -1000",
        'for value in ("-1000", "-500", "0", "999"):\n'
        '    tries(lambda: open("/proc/self/oom_score_adj", "w").write(value))',
    ),
    Attack(
        69,
        "real-time priority",
        "tries(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),\n"
        "      lambda: os.nice(-5))",
    ),
    Attack(
        70,
        "raise own limits",
        "import resource as r\n"
        "for kind in (r.RLIMIT_NPROC, r.RLIMIT_DATA, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE):\n"
        "    tries(lambda: r.setrlimit(kind, (r.RLIM_INFINITY, r.RLIM_INFINITY)),\n"
        "          lambda: r.setrlimit(kind, (r.getrlimit(kind)[1] + 1,) * 2))",
    ),
    Attack(
        71,
        "/proc/sys, sysrq",
        'tries(*[lambda p=p: os.open("/proc/" + p, os.O_WRONLY) for p in (\n'
        '    "sys/kernel/core_pattern", "sysrq-trigger", "sys/vm/drop_caches",\n'
        '    "sys/user/max_user_namespaces", "sys/kernel/hostname", "sys/vm/overcommit_memory")])',
    ),
    Attack(
        72,
        "/dev/mem, kcore, kmsg, cgroup files",
        "tries(*[lambda p=p: os.open(p, os.O_RDONLY) for p in (\n"
        '    "/dev/mem", "/proc/kcore", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/vda")])\n'
        'tries(*[lambda p=p: os.open("/sys/fs/cgroup/" + p, os.O_WRONLY) for p in (\n'
        '    "cgroup.procs", "memory/cgroup.procs", "unified/cgroup.procs")])\n'
        'refused("syslog", 3, ctypes.create_string_buffer(64), 64)',
    ),
    Attack(
        73,
        "controlling terminal",
        "import fcntl\n"
        'tries(lambda: os.open("/dev/tty", os.O_RDWR), lambda: os.open("/dev/ptmx", os.O_RDWR),\n'
        '      lambda: fcntl.ioctl(0, 0x5412, b"x"), lambda: fcntl.ioctl(1, 0x541C, b"\\x02"))',
    ),
    Attack(
        74,
        "SysV shared memory",
        'result, error = call("shmget", 0, 4096, 0o1600)\n'
        'if result >= 0: call("shmctl", result, 0, None); opened()\n'
        'result, error = call("semget", 0, 1, 0o1600)\n'
        'if result >= 0: call("semctl", result, 0, 0); opened()\n'
        'result, error = call("msgget", 0, 0o1600)\n'
        'if result >= 0: call("msgctl", result, 0, None); opened()\n'
        'refused("mq_unlink", b"none")',
    ),
    Attack(
        75,
        "kernel keyring",
        'refused("keyctl", 0, -3, 0)\nrefused("add_key", b"user", b"a", b"b", 1, -2)\n'
        'refused("request_key", b"user", b"a", None, 0)',
    ),
    Attack(76, "core file", "os.abort()", _no_core, fetch=("*",)),
    Attack(
        77,
        "zombie flood",
        "count = 0\n"
        "for _ in range(80):\n"
        "    try:\n"
        "        if os.fork() == 0: os._exit(0)\n"
        "        count += 1\n"
        "    except OSError: break\n"
        "if count >= 64: opened()",
    ),
    Attack(
        78,
        "crash the interpreter",
        "ctypes.string_at(0)",
        lambda r, _: r.status == "error" and r.signal == 11,
    ),
    Attack(
        79,
        "hang in atexit",
        "import atexit\natexit.register(time.sleep, 1e6)",
        status("timeout"),
        HASTY,
    ),
    Attack(
        80,
        "patch builtins for the next call",
        "import builtins, json, os.path\n"
        'builtins.len = lambda x: 0\njson.dumps = None\nsys.modules["math"] = None',
        then='import json, math\nprint("fine" if len([1]) == 1 and json.dumps(1) else "poisoned")',
    ),
)
