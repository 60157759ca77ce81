"""Rows 1 to 16: reading what is not theirs, and taking hold of other processes."""

from __future__ import annotations

from attack_row import Attack, status

ROWS = (
    Attack(1, "open the gold file", "tries(lambda: print(open(GOLD).read()))"),
    Attack(2, "list the gold directory", "tries(lambda: print(os.listdir(DIRECTORY)))"),
    Attack(3, "stat the gold file (size, existence)", "tries(lambda: os.stat(GOLD))"),
    Attack(
        4,
        "gold through /proc/PID/root",
        'tries(lambda: open(f"/proc/{VICTIM}/root{GOLD}").read(),\n'
        '      lambda: os.listdir(f"/proc/{VICTIM}/cwd/"))\n'
        "for pid in (1, os.getppid()):\n"
        '    tries(lambda: print(open(f"/proc/{pid}/root{GOLD}").read()))',
    ),
    Attack(
        5,
        "trainer's /proc/PID/environ",
        "def look(pid):\n"
        '    data = open(f"/proc/{pid}/environ").read()\n'
        '    if "".join(HALVES) in data: opened()\n'
        "for pid in (VICTIM, 1, os.getppid()):\n"
        "    try: look(pid)\n"
        "    except OSError: pass",
    ),
    Attack(
        6,
        "secrets in other command lines",
        'try: pids = [n for n in os.listdir("/proc") if n.isdigit()]\n'
        "except OSError: pids = []\n"
        "for pid in [*pids, VICTIM, *range(VICTIM - 20, VICTIM + 20)]:\n"
        '    try: data = open(f"/proc/{pid}/cmdline").read()\n'
        "    except OSError: continue\n"
        '    if "".join(HALVES) in data: opened()',
    ),
    Attack(
        7,
        "secrets in own environment",
        "text = str(os.environ)\n"
        'try: text += open("/proc/self/environ").read()\n'
        "except OSError: pass\n"
        'if "".join(HALVES) in text: opened()',
    ),
    Attack(
        8,
        "search the inherited heap for secrets",
        "first, second = (h.encode() for h in HALVES)\n"
        'try: maps, mem = open("/proc/self/maps"), open("/proc/self/mem", "rb", 0)\n'
        "except OSError: sys.exit()\n"
        "for line in maps:\n"
        '    start, end = (int(x, 16) for x in line.split()[0].split("-"))\n'
        '    if line.split()[1][0] != "r" or "[v" in line or end - start > 1 << 26: continue\n'
        "    try: mem.seek(start); data = mem.read(end - start)\n"
        "    except (OSError, ValueError): continue\n"
        "    at = data.find(first)\n"
        "    while at >= 0:\n"
        "        if data[at + len(first):at + len(first) + len(second)] == second: opened()\n"
        "        at = data.find(first, at + 1)",
    ),
    Attack(9, "ptrace the trainer", 'refused("ptrace", 16, VICTIM, 0, 0, by=(1, 38, 13, 3))'),
    Attack(
        10,
        "ptrace the parent / jail init",
        'refused("ptrace", 16, os.getppid(), 0, 0)\nrefused("ptrace", 0x4206, 1, 0, 0)',
    ),
    Attack(
        11,
        "process_vm_readv",
        "buffer = ctypes.create_string_buffer(8)\n"
        "pair = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)\n"
        "for pid in (VICTIM, os.getppid(), 1):\n"
        '    refused("process_vm_readv", pid, pair, 1, pair, 1, 0, by=(1, 3, 38))\n'
        '    refused("process_vm_writev", pid, pair, 0, pair, 0, 0, by=(1, 3, 38))',
    ),
    Attack(
        12,
        "/proc/PID/mem of the parent",
        'tries(lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(0),\n'
        '      lambda: open("/proc/1/mem", "rb").read(0),\n'
        '      lambda: open(f"/proc/{os.getppid()}/maps").read(1))',
    ),
    Attack(
        13,
        "steal a descriptor (pidfd_getfd)",
        "for pid in (os.getppid(), 1):\n"
        "    try: fd = os.pidfd_open(pid)\n"
        "    except OSError: continue\n"
        '    refused("pidfd_getfd", fd, 3, 0)\n'
        'tries(lambda: os.listdir(f"/proc/{os.getppid()}/fd"))',
    ),
    Attack(
        14,
        "signal the trainer",
        "import signal, fcntl\n"
        "def sigio():\n"
        "    r, w = os.pipe()\n"
        "    fcntl.fcntl(r, fcntl.F_SETOWN, VICTIM)\n"
        "    fcntl.fcntl(r, 10, 15)\n"
        "    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\n"
        '    os.write(w, b"x")\n'
        "tries(lambda: os.kill(VICTIM, signal.SIGUSR1),\n"
        "      lambda: signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGUSR1), sigio)\n"
        'refused("tgkill", VICTIM, VICTIM, 10, by=(1, 3))\n'
        'refused("tkill", VICTIM, 10, by=(1, 3))\n'
        'refused("rt_sigqueueinfo", VICTIM, 10, ctypes.create_string_buffer(128), by=(1, 3))',
    ),
    Attack(
        15,
        "kill / stop / interrupt the parent",
        "import signal\n"
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGKILL):\n"
        "    for pid in (os.getppid(), 1):\n"
        "        try: os.kill(pid, number)\n"
        "        except OSError: pass\n"
        'print("still here")',
        lambda result, _: result.status == "ok" and "still here" in result.stdout,
    ),
    Attack(
        16,
        "kill(-1)",
        "import signal\n"
        "if os.getppid() == 1: os.kill(-1, signal.SIGKILL)\n"
        "else: tries(lambda: os.kill(-1, 0))\n"
        'print("still here")',
        status("ok", "error"),
    ),
)
