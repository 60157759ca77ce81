"""How DARE-bench's words are read out of a checkout of its repository."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rollouts import python_tool
from rollouts.python_tool import parameters
from rollouts.words.release import called, mark, refused, template, thing
from rollouts.words.templates import Read

TOOL = Path("scripts/tools/python_executor/python_executor.py")
PROMPT = Path("scripts/agentic_reason/prompt_manager.py")
MODEL = "qwen"  # the release spells a tool by the model's name; GPT's chat requests are the same


def read_release(folder: Path) -> Read | None:
    """The tool as a Qwen or GPT model is shown it by chat requests, and the first messages."""
    if not (folder / TOOL).is_file():
        return None
    bounds = {"timeout": mark("seconds"), "max_file_size_mb": mark("megabytes")}
    config = thing(tool=thing(python_executor=bounds), max_turn=mark("uses"))
    example = {"question": [mark("question")]}
    (tool, asked), _ = called(
        folder,
        [
            {"file": str(TOOL), "call": "get_tool_description", "given": [MODEL, config]},
            {
                **{"file": str(PROMPT), "call": "prepare_active_sequence"},
                "named": {
                    **{"example_data": example, "dataset_name": ""},
                    "tool_use_type": "function_call",
                },
            },
        ],
    )
    function = tool["function"]
    shown = function["parameters"]["properties"]
    said = {name: str(shown[name].get("description", "")) for name in shown}
    if json.dumps(function["parameters"]) != json.dumps(parameters(said)):
        raise refused(folder, f"{TOOL}: the tool's parameters are none that Assay's tool has")
    if [message["role"] for message in asked] != ["user"]:
        raise refused(folder, f"{PROMPT}: other messages")
    return Read(
        {
            "system": "",
            "user": template(asked[0]["content"]),
            "tool": template(function["description"]),
            **{name: template(text) for name, text in said.items()},
            "brief": "",
            "strict": "yes" if function.get("strict") else "",
        }
    )


# releases by the hash of their words
KNOWN = {
    "58ea7d97898eb440693ce767eba1a844d200e286126f680e9771eb0c3c827ef8": "DARE-bench 0144714",
}
KIND = replace(python_tool.KIND, read=read_release, known=KNOWN)
