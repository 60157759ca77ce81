"""Settings of the commands that let a model answer tasks: `assay rollout`, `assay eval` and `assay
serve`. They are not locked: which of them an answer depends on, its journal says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from configs import KEY_ENV
from configs.loader import OPEN, Section, within
from configs.machine import CallsConfig, check_snippet

AGENT = "krama.agent"  # the setting that names who acts
# options of earlier versions whose names were others
EARLIER = {
    "--samples": "sampling.n",
    "--repeats": "sampling.n",
    "--workers": "server.in_flight",
    "--chunk": "engine.slots",
    "--request": "server.request",
    "--no-doubted": "krama.doubted",
}
# settings that options and records of answers call by another name than their own
CALLED = {
    "server.kind": "engine",
    "server.python": "server_python",
    "server.args": "server_args",
    "server.model": "endpoint_model",
    "server.request": "request_fields",
    "reward": "rewards",
    "who": "model",
}


def called(name: str) -> str:
    """What a setting is called in a record of answers, and was as an option: without its section,
    or as `CALLED` says."""
    return CALLED.get(name, name.rpartition(".")[2])


@dataclass(frozen=True)
class SamplingConfig(Section):
    """How often and how a model is sampled."""

    n: int = within(0, 0)
    """Answers a task. 0: one by eval; eight by rollout, and one where all would be alike."""

    temperature: float | None = within(None, 0)
    """0 is greedy. null: 0 by eval, 1 by rollout."""

    top_p: float = 1.0
    """Share of probability that sampling keeps; 1: off."""

    top_k: int = within(0, 0)
    """Most probable tokens that sampling keeps; 0: off."""

    max_new_tokens: int = within(0, 0)
    """Tokens of one message. 0: by task, half as long again as gold in the model's own tokens; 4096
    with tools, where gold is no text, and at an endpoint. A model that thinks before it answers
    needs more."""

    max_thinking_tokens: int = within(0, 0)
    """Tokens of the thought that a message of a model folder, or of a server that is asked by token
    ids, begins with: then its closing mark is put there, and the model answers. 0: no bound but
    max_new_tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p:g}: set a share above 0, 1 at most")


@dataclass(frozen=True)
class DecodingConfig(Section):
    """The embedded engine on this machine."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU if there is one."""

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """auto: bfloat16 where it is fast, else float32; what goes on keeps its own."""

    threads: int = within(0, 0)
    """Threads of one operation; 0: one per core."""

    slots: int = within(64, 1)
    """Answers decoded side by side."""


@dataclass(frozen=True)
class ServerConfig(Section):
    """A model behind HTTP: a server that is started here, or an address."""

    kind: Literal["embedded", "vllm", "sglang", "assay"] = "embedded"
    """Who computes. embedded: this process, and an address is asked in words. The others: token ids
    in and out of a server; a folder as --model starts one on each GPU, a URL uses the one there."""

    python: str = ""
    """Interpreter of the environment that has the server; empty: this one."""

    args: str = ""
    """More options of the server that is started."""

    gpus: int = within(1, 1)
    """GPUs that each server which is started is cut over (tensor parallelism)."""

    tokenizer: str | None = None
    """Folder with the tokenizer of a model behind a URL, with kind; of a scripted solver."""

    model: str = "default"
    """The model's name at an OpenAI-compatible address."""

    key_env: str = KEY_ENV
    """Environment variable with the address's key."""

    request: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """More fields of a request; null drops one."""

    in_flight: int = within(16, 1)
    """Requests side by side."""

    patience: float = within(600.0, 0)
    """Seconds to retry a request for."""

    timeout: float = within(600.0, 0)
    """Seconds that one try may take."""

    price: tuple[float, ...] = ()
    """Dollars a million tokens read and written, [IN, OUT]."""

    max_cost: float = within(0.0, 0)
    """Dollars after which nothing more is asked, all starts together; needs price. 0: no limit."""

    max_total_tokens: int = within(0, 0)
    """The same in tokens read and written; 0: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.price and (len(self.price) != 2 or min(self.price) < 0):
            raise ValueError(f"price={[*self.price]}: wanted two numbers, such as [0.15, 0.60]")
        if self.max_cost and not self.price:
            raise ValueError(f"max_cost={self.max_cost:g}: say what tokens cost, price=[IN, OUT]")


@dataclass(frozen=True)
class EpisodeConfig(Section):
    """Episodes with tools."""

    calls: Literal["hermes", "hermes_brief", "qwen_xml"] = "hermes"
    """How the model writes a tool call."""

    turns: int = within(0, 0)
    """Messages of a model; 0: by task."""

    run_s: float = within(0.0, 0)
    """Seconds of one tool run; 0: by task."""

    max_length: int = within(0, 0)
    """Tokens of an episode; 0: any."""

    brief: bool = False
    """A short description of the tool, for small models."""

    snippet_tokens: int | None = None
    """Tokens of a data lake's description in the first message; 0: all of it. null: 8000, all in a
    release's words."""

    snippet_rows: int | None = within(None, 0)
    """Sample rows of each group of files there, as far as these tokens allow. null: 5, as many as
    the release shows in its words."""

    tries: int = within(5, 1)
    """Pipelines that a few-shot agent of a lake may run before it has failed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_snippet(self.snippet_tokens)


@dataclass(frozen=True)
class TemplateConfig:
    """What the model's chat template is told."""

    chat_template_kwargs: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """Arguments of the chat template: {enable_thinking: false} for Qwen3. An endpoint is sent them
    with every request."""


@dataclass(frozen=True)
class CdrAskConfig:
    """CDR-Bench (--tasks cdr:PLACE[:track,…])."""

    mode: Literal["direct", "few_shot", "plan_first", "state_aware"] = "direct"
    """Prompt mode."""

    k: int = 3
    """Prompt variants a row; 0: all."""

    shots: int = 2
    """Examples of few_shot."""

    shot_chars: int = 1000
    """Characters of input and answer that an example may have."""

    examples: str | None = None
    """Training tasks that the examples are drawn from; null: train.jsonl beside the tracks."""

    all_rows: bool = False
    """Of a folder `assay tasks cdr` wrote: also the rows that are not held out, training rows among
    them."""


@dataclass(frozen=True)
class DareAskConfig:
    """DARE-bench (--tasks dare:DIR)."""

    only: str = ""
    """Tracks, comma-separated; empty: all."""

    simulate: bool = False
    """Make IF answers in this environment."""

    dsbench: str | None = None
    """DSBench's data_modeling folder, whose scripts score tasks of its competitions."""


Files = Literal["full", "oracle", "oracle*", "trimmed", "obscured"]
Agent = Literal[
    "ds-guru-no-context",
    "ds-guru-one-shot",
    "ds-guru-few-shot",
    "lake-agent",
    "lake-script",
    "smolagents",
    "datawise",
]


@dataclass(frozen=True)
class KramaAskConfig:
    """KramaBench (--tasks krama:PLACE)."""

    agent: Agent | None = None
    """Who acts; null: ds-guru-few-shot. smolagents and datawise also on tables (dare:…)."""

    settings: str = "end-to-end,subtasks"
    """Which, with commas."""

    doubted: bool = True
    """Tasks whose gold is doubted: asked, as the paper's tables do, and also counted apart."""

    input_mode: Files | None = None
    """Which files of the release's lakes are shown; null: full."""

    subtask_mode: Files | None = None
    """The same of sub-tasks; null: as input_mode, as in the release (the paper: oracle)."""

    judge_url: str = ""
    """OpenAI-compatible endpoint for paraphrase and design; its key is $ASSAY_JUDGE_KEY."""

    judge_model: str = ""
    """The judge's name there."""


@dataclass(frozen=True)
class RolloutConfig:
    """`assay rollout`."""

    prompts: str = ""
    """The words that tasks are asked in: a YAML file, a folder of them, or release:DIR for those of
    a release's checkout (docs/extend.md); empty: Assay's."""

    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    engine: DecodingConfig = field(default_factory=DecodingConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    model: TemplateConfig = field(default_factory=TemplateConfig)
    tools: EpisodeConfig = field(default_factory=EpisodeConfig)
    reward: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPEN)
    """reward.<family>.<setting>: the fields of the family's weights."""


@dataclass(frozen=True)
class EvaluationConfig(RolloutConfig):
    """`assay eval`."""

    reading: str = ""
    """How a scorer reads answers, where it has two."""

    cdr: CdrAskConfig = field(default_factory=CdrAskConfig)
    dare: DareAskConfig = field(default_factory=DareAskConfig)
    krama: KramaAskConfig = field(default_factory=KramaAskConfig)


@dataclass(frozen=True)
class ServeConfig:
    """`assay serve`."""

    engine: DecodingConfig = field(default_factory=DecodingConfig)
    model: TemplateConfig = field(default_factory=TemplateConfig)
    tools: CallsConfig = field(default_factory=CallsConfig)
