"""How DARE-bench's words are read out of a checkout of its repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from configs.loader import ConfigError
from rollouts.python_tool import parameters
from rollouts.words.interpret import Bag, Program, mark, template
from rollouts.words.templates import Read, Release

TOOL = Path("scripts/tools/python_executor/python_executor.py")
PROMPT = Path("scripts/agentic_reason/prompt_manager.py")
MODEL = "qwen"  # the release spells a tool by the model's name; GPT's chat requests are the same


def read_release(folder: Path) -> Read | None:
    """The tool as a Qwen or GPT model is shown it by chat requests, and the first messages."""
    if not (folder / TOOL).is_file():
        return None
    function, where = _tool(folder / TOOL)
    shown = function["parameters"]["properties"]
    said = {name: str(shown[name].get("description", "")) for name in shown}
    if json.dumps(function["parameters"]) != json.dumps(parameters(said)):
        raise ConfigError(f"{where}: the tool's parameters are none that Assay's tool has")
    prompts = Program(folder / PROMPT)
    asked: Any = prompts.call(
        "prepare_active_sequence",
        {"question": [mark("question")]},
        dataset_name="",
        model_path=None,
        tokenizer=None,
        tool_use_type="function_call",
    )
    if [message["role"] for message in asked] != ["user"]:
        raise prompts.refused(prompts.function("prepare_active_sequence"), "other messages")
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


def _tool(path: Path) -> tuple[dict[str, Any], str]:
    """The function that a request declares, with marks for its bounds, and where it stands."""
    program = Program(path)
    about = {n: program.constant(n) for n in ("name", "tool_description", "tool_parameters")}
    bounds = {"timeout": mark("seconds"), "max_file_size_mb": mark("megabytes")}
    config = Bag({"tool": Bag({"python_executor": bounds}), "max_turn": mark("uses")})
    tool: Any = program.call("get_tool_description", Bag({"__class__": Bag(about)}), MODEL, config)
    where = f"{path}:{program.function('get_tool_description').lineno}"
    if not isinstance(tool, dict) or "function" not in tool:
        raise ConfigError(f"{where}: a tool of a form that Assay does not send")
    return cast("dict[str, Any]", tool["function"]), where


# releases by the hash of their words
KNOWN = {
    "58ea7d97898eb440693ce767eba1a844d200e286126f680e9771eb0c3c827ef8": "DARE-bench 0144714",
}
RELEASE = Release(read_release, KNOWN)
