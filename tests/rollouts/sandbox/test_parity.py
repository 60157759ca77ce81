# ruff: noqa: E501 - the corpus is code in strings
"""Looks like `python main.py`: a corpus run in the jail and by a plain interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import running

from rollouts.sandbox.model import Config
from rollouts.sandbox.transfer import neutral
from rollouts.sandbox.worker import environment

CORPUS = {
    "hello": "print('hello')",
    "both streams": "import sys; print('out'); print('err', file=sys.stderr)",
    "exit code": "import sys; sys.exit(3)",
    "exit message": "import sys; sys.exit('went wrong')",
    "exit none": "raise SystemExit",
    "exit large": "import sys; sys.exit(259)",
    "exit negative": "import sys; sys.exit(-1)",
    "os exit": "import os; os._exit(9)",
    "exception": "def f(x):\n    return 1 / x\nprint('a')\nf(0)",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e",
    "syntax error": "print('a')\nx = = 2",
    "indentation": "if True:\nprint(1)",
    "null byte": "x = 1\0",
    "encoding": "# -*- coding: latin-1 -*-\nprint(len('\xe9'))",
    "bad utf-8": b"print('\xff')",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "exception group": "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])",
    "recursion": "def f(): f()\ntry: f()\nexcept RecursionError as e: print(e)",
    "abort": "import os; os.abort()",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "kill self": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "argv and path": "import sys, os; print(sys.argv, os.path.basename(sys.path[0]) != '')",
    "main": "import __main__; print(__name__, __file__.endswith('/main.py'), __doc__, __spec__)",
    "globals": "print(sorted(globals()))",
    "flags": "import sys; print(sys.flags.safe_path, sys.flags.hash_randomization, sys.flags.optimize)",
    "cwd": "import os; print(sorted(os.listdir()))",
    "hash": "print(hash('abc'), list({'a', 'b', 'c'}))",
    "files": "open('out.txt', 'w').write('x' * 10); open('b.bin', 'wb').write(bytes(range(256)))",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi')",
    "atexit order": "import atexit\nfor i in range(3): atexit.register(print, i)\n1/0",
    "threads": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\nprint('first')",
    "daemon thread": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('x')",
    "thread error": "import threading\nt = threading.Thread(target=lambda: print(1))\nt.start(); t.join()",
    "del at exit": "class A:\n    def __del__(self): print('gone')\na = A()\nprint('end')",
    "buffering": "import sys, os\nprint('a', end='')\nos.write(1, b'b')\nsys.stdout.flush()",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1/0",
    "warnings": "import warnings; warnings.warn('careful')",
    "stdin": "import sys; print(sys.stdin.read() == '')",
    "import own module": "import helper; print(helper.VALUE, helper.__file__.endswith('helper.py'))",
    "shadow stdlib": "import fractions; print(fractions.MINE)",
    "dataclass pickle": "import pickle\nclass P: x = 1\nprint(pickle.loads(pickle.dumps(P())).x)",
    "subprocess": "import subprocess, sys\n"
    "print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout)",
    "shell": "import subprocess; print(subprocess.check_output('echo $((1+2))', shell=True))",
    "fork pool": "import multiprocessing as m\ndef f(x): return x * x\n"
    "if __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2]))",
    "spawn pool": "import multiprocessing as m\ndef f(x): return x * x\n"
    "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [3]))",
    "process join": "import multiprocessing as m\ndef f(): print('child')\n"
    "if __name__ == '__main__': m.get_context('fork').Process(target=f).start()",
    "asyncio": "import asyncio\nasync def f():\n    await asyncio.sleep(0); return 4\n"
    "print(asyncio.run(f()))",
    "executor": "from concurrent.futures import ThreadPoolExecutor as T\n"
    "print(list(T(2).map(abs, [-1, -2])))",
    "sqlite": "import sqlite3\nc = sqlite3.connect('d.db')\nc.execute('create table t(a)')\n"
    "c.execute('insert into t values(1)'); c.commit(); print(c.execute('select * from t').fetchall())",
    "temporary": "import tempfile, os\nwith tempfile.NamedTemporaryFile() as f: print(os.path.exists(f.name))",
    "locale and time": "import time, locale; print(time.tzname, locale.getpreferredencoding())",
    "unicode": "print('\\u00e9\\u4e2d\\U0001f600')",
    "surrogates": "print('\\udcff')",
    "gc and weakref": "import gc, weakref\nclass A: pass\na = A(); r = weakref.ref(a); del a; print(r(), gc.isenabled())",
    "mmap": "import mmap; m = mmap.mmap(-1, 4096); m[0] = 7; print(m[0])",
    "socketpair": "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))",
    "logging": "import logging; logging.warning('w'); logging.getLogger('a').error('e')",
    "random seeded": "import random; random.seed(1); print(random.random())",
    "numpy": "import numpy as np; np.random.seed(0); print(np.random.rand(2), np.arange(6).reshape(2, 3) @ np.ones(3))",
    "getpass": "import os; print(os.environ['HOME'] != '', os.environ['LANG'], os.environ['TZ'])",
}
INPUTS = {"helper.py": b"VALUE = 11\n"}
SHADOW = {"fractions.py": b"MINE = 'local'\n"}


def plain(
    code: bytes, inputs: dict[str, bytes], top: Path
) -> tuple[str, str, int, dict[str, bytes]]:
    for name, data in {**inputs, "main.py": code}.items():
        (top / name).write_bytes(data)
    env = {**environment(Config()), "HOME": str(top), "TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=top, env=env, capture_output=True, stdin=subprocess.DEVNULL
    )
    found = {p.name: p.read_bytes() for p in top.iterdir() if p.is_file()}
    made = {n: d for n, d in found.items() if n not in inputs and n != "main.py"}
    place = os.path.realpath(top)
    out, err = (
        s.decode("utf-8", "replace").replace(place, "/sandbox") for s in (done.stdout, done.stderr)
    )
    return neutral(out), neutral(err), done.returncode, made


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(run, reached: str, name: str, tmp_path: Path) -> None:
    if reached != "full":
        pytest.skip("paths and semaphores differ without namespaces")
    code = CORPUS[name]
    source = (
        code if isinstance(code, bytes) else code.encode("latin-1" if "latin" in code else "utf-8")
    )
    inputs = {**INPUTS, **(SHADOW if name == "shadow stdlib" else {})}
    out, err, status, made = plain(source, inputs, tmp_path)
    result = run(source, inputs, ["*"])
    assert (result.stdout, result.exit_code) == (out, status), result.stderr
    assert result.stderr == err
    if name != "sqlite":  # the database file carries a change counter and a version
        assert result.files == made


BITS = """
import hashlib, numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 6)); y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
def show(name, a): print(name, hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16])
show("matmul", X.T @ X)
show("lstsq", np.linalg.lstsq(X, y, rcond=None)[0])
show("ridge", Ridge().fit(X, y).coef_)
show("logistic", LogisticRegression().fit(X, y).predict_proba(X))
show("pca", PCA(3).fit_transform(X))
show("kmeans", KMeans(3, n_init=2, random_state=0).fit(X).cluster_centers_)
show("forest", RandomForestClassifier(20, random_state=0, n_jobs=-1).fit(X, y).predict_proba(X))
show("boosting", HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(X, y).predict_proba(X))
show("svc", SVC(probability=False).fit(X, y).decision_function(X))
"""


def test_learning_is_bit_equal_to_a_plain_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    out, err, status, _ = plain(BITS.encode(), {}, tmp_path)
    assert status == 0, err
    with running(Config(workers=1, min_level="limits")) as (run, _):
        first, second = run(BITS), run(BITS)
        assert first.stdout == out, first.stderr
        assert second.stdout == out
