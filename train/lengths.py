"""What fits: what `sft.max_length=auto`, `rl.max_length=auto` and `rl.max_new_tokens=auto` come to,
bounded by the model's context and by memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.machine import available_memory
from assay.task import Task
from configs.loader import ConfigError
from configs.machine import EngineConfig, ModelConfig
from configs.schema import GrpoConfig, GrpoRunConfig, SftConfig, SftRunConfig
from rollouts.engines.engine import Shape
from rollouts.environments import EnvironmentFactory, read_prompts
from rollouts.prompts import ChatTokenizer, for_gold, gold_text
from train.memory import cache_bytes, state_bytes, token_bytes
from train.model.order import prompt_lengths
from train.model.source import context_in, local_model, shape_of
from train.run.data import asked_for, training_tasks
from train.run.record import read_run_record

SHARE = 0.6  # of the memory that is left beside weights and optimiser
UNKNOWN_ANSWER, MESSAGE = 512, 1024  # tokens
UNREAD = 4096  # tokens where nothing can be measured
NOT_MEASURED = "lengths: not measured, the model or the data is not on this machine"
TOOL_OUTPUT = 512  # tokens that a tool's answer takes, about


@dataclass(frozen=True)
class Room:
    """How many tokens a sequence may have: by the model's context, and by this machine's memory. 0
    is not known."""

    context: int = 0
    memory: int = 0

    @property
    def most(self) -> int:
        """The smaller of those that are known, 0 where none is."""
        return min((n for n in (self.context, self.memory) if n), default=0)

    def why(self) -> str:
        """What the bound is."""
        if self.most == self.context:
            return f"the model's context is {self.context}"
        return (
            f"memory allows about {self.memory} (engine.dtype, model.lora_rank and --backend help)"
        )


def room_of(
    folder: str | Path | None, engine: EngineConfig, model: ModelConfig, answers: int = 0
) -> Room:
    """Room for one sequence in training on this machine; `answers`: sequences that are decoded side
    by side, whose keys and values stay in memory."""
    try:
        shape = shape_of(str(folder))
    except ConfigError:  # its memory cannot be estimated
        return Room(context_in(Path(str(folder))))
    free = _free(engine.device)
    return Room(shape.positions, 0 if free is None else _fits(shape, engine, model, answers, free))


def _free(device: str) -> int | None:
    if device != "cpu":
        import torch

        if torch.cuda.is_available():
            return int(torch.cuda.mem_get_info()[0])
    return available_memory()


def _fits(shape: Shape, engine: EngineConfig, model: ModelConfig, answers: int, free: int) -> int:
    """The longest sequence whose activations take no more than `SHARE` of what is left."""
    left = SHARE * max(free - sum(state_bytes(engine, model, shape).values()), 0)
    line = token_bytes(engine, shape) + answers * cache_bytes(engine, shape)
    width = 4 if engine.dtype == "float32" else 2
    square = 1.5 * width * shape.layers * shape.heads  # attention keeps each layer's weights
    root = (line * line + 4 * square * left) ** 0.5
    return max(int((root - line) / (2 * square)), 64)


def for_rl(
    config: GrpoRunConfig,
    tasks: Sequence[Task],
    tokenizer: ChatTokenizer,
    folder: Path,
    here: bool = True,
) -> tuple[GrpoRunConfig, str]:
    """The run with lengths that fit its tasks, and a sentence that says why. `here`: bounded by
    this machine's memory too."""
    rl = config.rl
    if rl.max_length and rl.max_new_tokens:
        return config, ""
    answers = min(config.engine.slots, rl.prompts_per_step * rl.rollouts_per_prompt)
    room = _room(config, folder, here, answers)
    made, said = fit_rl(rl, measured(tasks, tokenizer), room, config.out)
    return replace(config, rl=made), said


def for_sft(
    config: SftRunConfig, sizes: Sequence[int], folder: Path, here: bool = True
) -> tuple[SftRunConfig, str]:
    """The same of a run that imitates examples of these tokens each."""
    sft, why = fit_sft(config.sft, sizes, _room(config, folder, here), config.out)
    return replace(config, sft=sft), why


def _room(config: SftRunConfig | GrpoRunConfig, folder: Path, here: bool, answers: int = 0) -> Room:
    room = room_of(folder, config.engine, config.model, answers)
    return room if here else Room(room.context)


def rl_before(config: GrpoRunConfig, here: bool) -> tuple[GrpoRunConfig, str]:
    """`for_rl` before anything is loaded, as far as data and tokenizer are on this machine."""
    if config.rl.max_length and config.rl.max_new_tokens:
        return config, ""
    folder = local_model(config.model.path)
    if folder is None or not Path(config.data).is_file():
        return replace(config, rl=unfitted(config.rl, config.model.path)), NOT_MEASURED
    tokenizer = ChatTokenizer(folder, config.tools.calls, config.model.chat_template_kwargs)
    shop = EnvironmentFactory(Path(config.data).parent, env=config.env)
    found = training_tasks(config.data, asked=asked_for(config))
    tasks = read_prompts(config.prompts).asked(map(shop.equip, found))
    return for_rl(config, tasks, tokenizer, folder, here)


def fit_sft(
    sft: SftConfig, sizes: Sequence[int], room: Room, out: str = ""
) -> tuple[SftConfig, str]:
    """(settings with a length for examples of `sizes` tokens, a sentence that says why; "" where
    the setting is explicit). A run that has begun in `out` keeps its length."""
    if sft.max_length:
        return sft, ""
    if begun := _begun(out, "sft", "max_length"):
        return replace(sft, max_length=begun), f"sft.max_length={begun}, as this run began"
    longest = max(sizes, default=1)
    if not room.most or longest <= room.most:
        why = f"the longest of {len(sizes)} examples"
        return replace(sft, max_length=longest), f"sft.max_length={longest} (auto): {why}"
    over = sum(size > room.most for size in sizes)
    said = (
        f"sft.max_length={room.most} (auto): {room.why()}; {over} of {len(sizes)} examples are "
        f"longer, up to {longest}"
    )
    return replace(sft, max_length=room.most), said


@dataclass(frozen=True)
class Measured:
    """Tokens of the longest prompt and of the longest gold answer; `answer` is 0 where no gold is
    text, and `tools` whether any task is an episode."""

    prompt: int
    answer: int
    tools: bool


def measured(tasks: Sequence[Task], tokenizer: ChatTokenizer) -> Measured:
    """The lengths of tasks in a model's own tokens."""
    prompts = prompt_lengths(tasks, tokenizer)
    answers = [len(tokenizer.answer(text, plain=True)) for text in map(gold_text, tasks) if text]
    tools = any(task.tools for task in tasks)
    return Measured(max(prompts, default=1), max(answers, default=0), tools)


def fit_rl(rl: GrpoConfig, found: Measured, room: Room, out: str = "") -> tuple[GrpoConfig, str]:
    """As `fit_sft`: half as long again as the longest gold answer, and room for it behind the
    longest prompt. Episodes with tools get all turns where they fit."""
    new = rl.max_new_tokens or _begun(out, "rl", "max_new_tokens")
    length = rl.max_length or _begun(out, "rl", "max_length")
    if rl.max_new_tokens and rl.max_length:
        return rl, ""
    wanted = new or _answer(found)
    if not length:
        turns = rl.turns if found.tools else 1
        length = found.prompt + turns * wanted + (turns - 1) * TOOL_OUTPUT
        length = min(length, room.most or length)
    if not new:
        new = min(wanted, max(length // 2, 1)) if length < found.prompt + wanted else wanted
        new = max(1, min(new, length - 1))
    made = replace(rl, max_new_tokens=new, max_length=max(length, new + 1))
    said = (
        f"rl.max_new_tokens={made.max_new_tokens} rl.max_length={made.max_length} (auto): the "
        f"longest prompt has {found.prompt} tokens, the longest gold answer {found.answer or '–'}"
    )
    bound = room.most and made.max_length >= room.most
    return made, said + (f"; {room.why()}" if bound else "")


def _answer(found: Measured) -> int:
    if found.tools:
        return MESSAGE
    return for_gold(found.answer) if found.answer else UNKNOWN_ANSWER


def unfitted(section: Any, model: str | None) -> Any:
    """A section for an estimate where nothing can be measured: what is auto counts as the model's
    context, 4096 tokens at most, with a quarter of it for an answer."""
    if section.max_length and getattr(section, "max_new_tokens", 1):
        return section
    room = room_of(model, EngineConfig(), ModelConfig())
    length = section.max_length or min(room.context or UNREAD, UNREAD)
    if isinstance(section, SftConfig):
        return replace(section, max_length=length)
    return replace(section, max_length=length, max_new_tokens=section.max_new_tokens or length // 4)


def _begun(out: str, section: str, name: str) -> int:
    """What a run in this folder began with; 0 for none."""
    if not out:
        return 0
    record: Any = read_run_record(Path(out)).get("config")
    try:
        return int(record[section][name])
    except (KeyError, TypeError, ValueError):
        return 0
