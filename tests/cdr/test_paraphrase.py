"""A paraphrase is accepted only when its recipe is recovered and the judge agrees; a local server
plays the endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from data_gen.instruct import pool
from data_gen.paraphrase import CHECKS, SCORES, Endpoint, EndpointError, menu, paraphrase
from rewards.gold import Step

STEPS = [Step("clean_email_mapper"), Step("words_num_filter", {"min_num": 1500})]
BASE = pool(STEPS, "key")[0]
GOOD = {name: True for name in CHECKS} | {name: 5 for name in SCORES} | {"verdict": "keep"}
FREE = "Would you lose the mail addresses, and only hold on to it with 1,500 words or up?"
NAMES = [name for name, _, _ in menu()]
CHOICE = [{"operation": NAMES.index("clean_email_mapper") + 1, "number": None},
          {"operation": NAMES.index("words_num_filter") + 1, "number": "1,500"}]  # fmt: skip


@contextmanager
def serving(reply: Callable[[str], str]) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = reply(body["messages"][0]["content"])
            data = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "stub", timeout=10)
    finally:
        server.shutdown()
        server.server_close()


def answers(text: str, choice: Any = CHOICE, verdict: Any = GOOD) -> Callable[[str], str]:
    def reply(prompt: str) -> str:
        if prompt.startswith("Rewrite"):
            return text
        return json.dumps(choice if prompt.startswith("Which") else verdict)

    return reply


def test_a_faithful_paraphrase_is_accepted() -> None:
    with serving(answers(FREE)) as endpoint:
        made = paraphrase(STEPS, BASE, endpoint)
    assert made is not None
    assert (made.user_requirement, made.style_id) == (FREE, BASE.style_id)


@pytest.mark.parametrize(
    ("text", "choice", "verdict"),
    [
        (FREE.replace("1,500", "1,200"), CHOICE, GOOD),  # another number
        (FREE, CHOICE[::-1], GOOD),  # another order
        (FREE, CHOICE[:1], GOOD),  # an operation is lost
        (FREE, "no list", GOOD),
        (FREE, CHOICE, GOOD | {"order_correct": False}),
        (FREE, CHOICE, GOOD | {"clarity": 1, "naturalness": 1}),
        (FREE, CHOICE, GOOD | {"verdict": "drop"}),
        ("Run clean_email_mapper, then keep from 1500 words.", CHOICE, GOOD),
        ("", CHOICE, GOOD),
    ],
)
def test_what_cannot_be_proved_is_refused(text: str, choice: Any, verdict: Any) -> None:
    with serving(answers(text, choice, verdict)) as endpoint:
        assert paraphrase(STEPS, BASE, endpoint) is None


def test_an_endpoint_that_is_not_there_is_no_verdict() -> None:
    with pytest.raises(EndpointError):
        paraphrase(STEPS, BASE, Endpoint("http://127.0.0.1:9/v1", "stub", timeout=2))
