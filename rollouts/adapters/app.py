"""A resource server of NeMo Gym over the tasks beside this file.

`verify` takes a response and the field `assay_id` of its row, and answers with Assay's reward and
outcome. `gym.jsonl` holds the rows: `responses_create_params` and `assay_id`.
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import Path

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)

from assay.task import Task
from rewards.adapters.words import load, score_text

HERE = Path(__file__).resolve().parent
TASKS: dict[str, Task] = {w.task.id: w.task for w in load(HERE)}


class AssayConfig(BaseResourcesServerConfig):
    """The settings of every resource server."""


class AssayRequest(BaseVerifyRequest):
    """A response to one of the tasks."""

    assay_id: str


class AssayResponse(BaseVerifyResponse):
    """The reward, and beside it the benchmark's own number and the reason."""

    assay_id: str
    outcome: float
    why: str


class AssayServer(SimpleResourcesServer):
    """Scores the text of a response's messages."""

    config: AssayConfig

    async def verify(self, body: AssayRequest) -> AssayResponse:
        cut = body.response.incomplete_details is not None
        made = score_text(TASKS[body.assay_id], last_text(body), cut)
        if made.outcome is None or made.reward is None:  # never a zero
            raise RuntimeError(f"no outcome: {made.why}")
        return AssayResponse(
            **body.model_dump(), reward=made.reward, outcome=made.outcome, why=made.why
        )


def last_text(body: BaseVerifyRequest) -> str:
    """The text of the last message of a response; "" where there is none."""
    for item in reversed(body.response.output):
        if item.type == "message":
            return "".join(part.text for part in item.content if part.type == "output_text")
    return ""


if __name__ == "__main__":
    AssayServer.run_webserver()
