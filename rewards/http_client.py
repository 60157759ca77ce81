"""One POST to an endpoint, tried again for the endpoint's reasons: the way every caller asks."""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

BUSY = 429  # the endpoint asks for patience, as does any answer with Retry-After
AGAIN = (408, 409, 425, BUSY, 500, 502, 503, 504)


class EndpointError(OSError):
    """The endpoint could not be had, or refused; the message says what it said."""

    def __init__(self, said: str, status: int = 0, body: str = "") -> None:
        super().__init__(said)
        self.status, self.body = status, body


@dataclass(frozen=True)
class Patience:
    """How long one request is tried: `attempts` for errors and lost connections; while the endpoint
    says that it is busy, until `seconds` have been waited in all. Pauses grow from `pause_s` to
    `longest_s`, drawn apart so that many callers do not come back together; a `Retry-After` is
    kept."""

    attempts: int = 5
    seconds: float = 600.0
    pause_s: float = 1.0
    longest_s: float = 60.0

    def pause(self, tries: int, retry_after: float) -> float:
        """Seconds before the next try, after `tries` of them."""
        grown = min(self.pause_s * 2.0 ** min(tries - 1, 30), self.longest_s)
        return max(retry_after, grown * random.uniform(0.5, 1.5))


async def post_json(
    session: Any, url: str, body: Mapping[str, Any], patience: Patience
) -> Mapping[str, Any]:
    """The JSON answer of `POST url`, from an aiohttp session. Raises `EndpointError`."""
    import aiohttp

    waited, errors, tries = 0.0, 0, 0
    while True:
        status, said, after = 0, "", 0.0
        tries += 1
        try:
            async with session.post(url, json=body) as answer:
                status, said = answer.status, await answer.text()
                if status == 200:
                    return cast("Mapping[str, Any]", await answer.json(content_type=None))
                after = retry_after(answer.headers.get("Retry-After"))
            why = f"HTTP {status}: {said[:300]}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            status, why = 0, f"{type(error).__name__}: {error}"
        if status and status not in AGAIN:
            raise EndpointError(f"{url}: {why}", status, said)
        errors += status != BUSY and not after
        pause = patience.pause(tries, after)
        waited += pause
        if errors >= patience.attempts or waited > patience.seconds:
            tried = f"{tries} tries" if tries > 1 else "1 try"
            raise EndpointError(f"{url}: {why} ({tried})", status, said)
        await asyncio.sleep(pause)


def retry_after(value: str | None) -> float:
    """Seconds that a `Retry-After` header asks for, as a number or as a date; 0 without one."""
    if not value:
        return 0.0
    try:
        return max(0.0, min(float(value), 1e6))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
