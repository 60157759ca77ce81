"""A resource server of NeMo Gym over the tasks beside this file.

`verify` takes a response and the field `assay_id` of its row, and answers with Assay's reward and
outcome. `gym.jsonl` holds the rows: `responses_create_params` and `assay_id`.

`seed_session` of a task with tools of one's own starts an episode, whose tools are called at
`/NAME` with the session's cookie; `verify` of that session ends it. Episodes live in this process:
one worker serves them.
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY

from data_gen.exports.episodes import Episodes, ToolEpisode
from rewards.adapters import score_text

HERE = Path(__file__).resolve().parent
EPISODES = Episodes(HERE)
SESSIONS: dict[str, ToolEpisode] = {}  # by Gym's session id


class AssayConfig(BaseResourcesServerConfig):
    """The settings of every resource server."""


class AssaySeed(BaseSeedSessionRequest):
    """The start of an episode of one of the tasks."""

    assay_id: str


class AssayRequest(BaseVerifyRequest):
    """A response to one of the tasks."""

    assay_id: str


class AssayResponse(BaseVerifyResponse):
    """The reward, and beside it the benchmark's own number and the reason."""

    assay_id: str
    outcome: float
    why: str


class AssayServer(SimpleResourcesServer):
    """Runs the tools of a task, and scores the text of a response's messages."""

    config: AssayConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/{name}")(self.call_tool)  # behind Gym's own endpoints
        return app

    async def seed_session(self, request: Request, body: AssaySeed) -> BaseSeedSessionResponse:
        session = request.session[SESSION_ID_KEY]
        if (before := SESSIONS.pop(session, None)) is not None:
            await before.close()
        if EPISODES.tools(body.assay_id):
            SESSIONS[session] = await EPISODES.start(body.assay_id)
        return BaseSeedSessionResponse()

    async def call_tool(self, request: Request, name: str) -> PlainTextResponse:
        episode = SESSIONS.get(request.session[SESSION_ID_KEY])
        if episode is None:
            raise HTTPException(404, f"no episode of this session has a tool {name!r}")
        return PlainTextResponse(await episode.call(name, (await request.body()).decode()))

    async def verify(self, request: Request, body: AssayRequest) -> AssayResponse:
        cut = body.response.incomplete_details is not None
        episode = SESSIONS.pop(request.session[SESSION_ID_KEY], None)
        if episode is None:
            made = score_text(EPISODES[body.assay_id].task, last_text(body), cut)
        elif episode.task.id != body.assay_id:
            raise HTTPException(409, f"this session's episode is of the task {episode.task.id}")
        else:
            made = await episode.score(last_text(body), cut)
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
