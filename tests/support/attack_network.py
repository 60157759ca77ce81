"""Rows 17 to 24: every way out over a socket."""

from __future__ import annotations

from attack_row import Attack

_IMPORT = "import socket as s\n"

ROWS = (
    Attack(
        17,
        "TCP to a loopback service",
        _IMPORT + 'tries(lambda: s.create_connection(("127.0.0.1", PORT), 1))',
    ),
    Attack(
        18,
        "UDP send",
        _IMPORT + 'tries(lambda: s.socket(2, s.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP_PORT)))',
    ),
    Attack(
        19,
        "TCP listen",
        _IMPORT + "def listen():\n"
        "    sock = s.socket()\n"
        '    sock.bind(("127.0.0.1", 0))\n'
        "    sock.listen()\n"
        "tries(listen)",
    ),
    Attack(
        20,
        "abstract Unix socket",
        _IMPORT + "tries(lambda: s.socket(1).connect(ABSTRACT))\n"
        "def dgram():\n"
        "    a, b = s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)\n"
        '    a.sendto(b"x", ABSTRACT + "d")\n'
        "tries(dgram)",
    ),
    Attack(
        21,
        "Unix socket by path",
        _IMPORT + "tries(lambda: s.socket(1).connect(SOCKET))\n"
        "def dgram():\n"
        "    a, b = s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)\n"
        '    a.sendto(b"x", SOCKET + ".dgram")\n'
        "tries(dgram)",
    ),
    Attack(
        22,
        "netlink / packet socket",
        _IMPORT + "tries(lambda: s.socket(16, s.SOCK_RAW, 0), lambda: s.socket(17, s.SOCK_RAW, 0))",
    ),
    Attack(
        23,
        "AF_VSOCK socket",
        _IMPORT + "tries(lambda: s.socket(40, s.SOCK_STREAM), lambda: s.socket(38, 5, 0))",
    ),
    Attack(
        24,
        "io_uring (goes round seccomp socket rules)",
        'refused("io_uring_setup", 4, None)\nrefused("io_uring_enter", 0, 0, 0, 0, None, 0)',
    ),
)
