# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What SFT learns from: gold answers of tasks, assistant turns of chats, kept rollouts.

All become token ids in the model's own chat format, with a mask of what carries loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.console import ALL_TASKS, TaskFilter
from assay.family import family_named, gold_answer
from assay.fingerprints import asked_mark, marks_of, row_marks
from assay.rows import is_parquet, read_rows
from assay.task import Task, TaskError, with_absolute_files
from rewards.published import published_database, refuse_published
from rollouts.chats import FIELDS, ROLES, chat_of, is_chat, read_calls, without_nulls
from rollouts.environments import read_prompts
from rollouts.prompts import ChatTokenizer, PromptError
from train.run.data import require_file

Row = Mapping[str, Any]
_NAME = 200  # characters of a name


@dataclass(frozen=True)
class Example:
    """One training text as ids: the prompt, and what follows it.

    The loss is on the whole answer, or where `mask` is 1: tool tokens of an episode and user turns
    between two answers carry none.
    """

    prompt: list[int]
    answer: list[int]
    mask: list[int] | None = None

    marks: tuple[int, ...] = field(default=(), compare=False)
    """What the model's record keeps of it (assay/fingerprints.py)."""

    @property
    def tokens(self) -> int:
        """Prompt and answer."""
        return len(self.prompt) + len(self.answer)

    @property
    def scored(self) -> int:
        """Tokens that carry loss."""
        return len(self.answer) if self.mask is None else sum(self.mask)


def examples_of(
    rows: Sequence[tuple[str, Row]], tokenizer: ChatTokenizer, root: Path = Path()
) -> list[Example]:
    """The examples of the rows of one file. Says on standard error how many have token ids that
    this model's tokenizer did not make, and are read from their messages."""
    strange = sum(_strange(row, where, tokenizer) for where, row in rows)
    if strange:
        print(
            f"{strange} of {len(rows)} rows have token ids of another tokenizer, chat template or "
            "template arguments; their messages are learned instead",
            file=sys.stderr,
        )
    return [example_of(row, where, tokenizer, root) for where, row in rows]


def example_of(row: Row, where: str, tokenizer: ChatTokenizer, root: Path = Path()) -> Example:
    """One row: a rollout's ids where this tokenizer made them, else a chat, else a task with gold,
    whose files are relative to `root`."""
    if _has_ids(row) and not _strange(row, where, tokenizer):
        return replace(
            _trace(row["ids"], row["loss_mask"], where, tokenizer), marks=tuple(row_marks(row))
        )
    if is_chat(row):
        return _chat(row, where, tokenizer)
    if "gold" in row:
        task = Task.from_json(row, where)
        return gold_example(with_absolute_files(task, root), where, tokenizer)
    raise TaskError(
        f"{where}: nothing to learn from; a row needs `gold` (a task), `messages` or "
        "`conversations` (a chat), or `ids` and `loss_mask` (what `assay select` writes)"
    )


def _has_ids(row: Row) -> bool:
    return bool(row.get("ids") and row.get("loss_mask"))


def _strange(row: Row, where: str, tokenizer: ChatTokenizer) -> bool:
    """Whether a row has token ids that another tokenizer or chat template made. A row that does not
    name its tokenizer is known by its first answer.

    Raises `TaskError` where there are no messages to take instead.
    """
    if not _has_ids(row):
        return False
    made_by = row.get("tokenizer")
    same = made_by == tokenizer.fingerprint if made_by else _reads(row, where, tokenizer)
    if not same and not is_chat(row):
        raise TaskError(
            f"{where}: its token ids were made by another tokenizer or chat template, and it has "
            "no `messages` to read instead; sample with this model, or keep the messages"
        )
    return not same


def gold_example(task: Task, where: str, tokenizer: ChatTokenizer) -> Example:
    """A task's prompt and its gold answer, as the model would write it. Raises `TaskError` where
    gold is no text."""
    refuse_published([task], where)
    gold = gold_answer(family_named(task.family, where), task)
    instead = "learn from rollouts instead: `assay rollout`, then `assay select`"
    if gold is None:
        raise TaskError(
            f"{where}: task {task.id} of family {task.family} has gold that must be run; {instead}"
        )
    if gold.files:
        raise TaskError(
            f"{where}: task {task.id} of family {task.family}: its gold is files "
            f"({', '.join(gold.files)}), no text to imitate; {instead}"
        )
    if not gold.text.strip():
        raise TaskError(
            f"{where}: task {task.id}: its gold text is empty: there is no word to learn"
        )
    marks = tuple(marks_of(task).flat())
    return Example(
        tokenizer.prompt(task.prompt), tokenizer.answer(gold.text, plain=True), marks=marks
    )


def _reads(row: Row, where: str, tokenizer: ChatTokenizer) -> bool:
    """Whether a row's ids are ids of this tokenizer that say what its messages say, if any."""
    ids, mask = list(row["ids"]), list(row["loss_mask"])
    if max(ids) >= tokenizer.size or min(ids) < 0:
        return False
    if not is_chat(row) or 1 not in mask:
        return True
    said = [turn.content for turn in chat_of(row, where).turns if turn.role == "assistant"]
    start = mask.index(1)
    end = mask.index(0, start) if 0 in mask[start:] else len(mask)
    return bool(said) and said[0].strip() in tokenizer.raw(ids[start:end])


def _trace(
    ids: Sequence[int], mask: Sequence[int], where: str, tokenizer: ChatTokenizer
) -> Example:
    """A rollout as the tokens that were sampled."""
    if len(ids) != len(mask):
        raise TaskError(f"{where}: {len(ids)} ids and {len(mask)} entries of loss_mask; want both")
    if 1 not in mask:
        raise TaskError(f"{where}: no entry of loss_mask is 1: no tokens to learn")
    start, end = list(mask).index(1), len(mask) - list(mask)[::-1].index(1)
    if all(i in tokenizer.stop_ids for i, m in zip(ids, mask, strict=True) if m):
        raise TaskError(f"{where}: {_NOTHING}")
    return Example(list(ids[:start]), list(ids[start:end]), list(mask[start:end]))


_NOTHING = (
    "the assistant says nothing and calls no tool in it: there is no word to learn; leave the row "
    "out, or write what the model is to say"
)


def _chat(row: Row, where: str, tokenizer: ChatTokenizer) -> Example:
    """A conversation; the loss is on what the assistant says, its stop token included, but for
    turns that are marked as not to be learned and those that say nothing.

    Turns are laid out as an episode's are: the template's frame around each answer, so that what
    is learned is what the model sees when it is asked. What follows the last answer is left out.
    """
    chat = chat_of(row, where)
    turns = chat.turns
    if row.get("ids"):  # of another model, whose calls stand in the text as that one spells them
        turns = tuple(read_calls(turn, chat.tools) for turn in turns)
    said = [i for i, turn in enumerate(turns) if turn.role == "assistant"]
    if not said or said[0] == 0:
        raise TaskError(f"{where}: `messages` needs an assistant turn after a user's")
    if not any(turns[i].says for i in said):
        raise TaskError(f"{where}: {_NOTHING}")
    learned = [i for i in said if turns[i].learned and turns[i].says]
    if not learned:
        raise TaskError(f"{where}: none of its assistant messages is to be learned; leave it out")
    asked, tools = [turn.message() for turn in turns[: said[0]]], chat.tools
    answer: list[int] = []
    mask: list[int] = []
    try:
        tokenizer = tokenizer.under(chat.template)
        prompt = tokenizer.prompt(asked, tools)
        for i, after in zip(said, [*said[1:], None], strict=True):
            ids = tokenizer.turn(turns[i].content, turns[i].calls, turns[i].thought)
            answer += ids
            mask += [int(i in learned)] * len(ids)
            if i == learned[-1]:
                break
            assert after is not None
            between = [turn.message() for turn in turns[i + 1 : after]]
            follow = tokenizer.follow(between, True, tools)
            answer += follow
            mask += [0] * len(follow)
    except PromptError as error:
        raise TaskError(f"{where}: {error}") from None
    brought = row_marks(row) if row.get("marks") else [asked_mark(asked)]
    return Example(prompt, answer, mask, marks=tuple(brought))


def fitting(examples: Sequence[Example], max_length: int) -> list[Example]:
    """Examples of at most `max_length` tokens (0: any). Raises `TaskError` saying what would
    fit."""
    kept = [e for e in examples if not max_length or e.tokens <= max_length]
    if not kept:
        sizes = sorted(e.tokens for e in examples)
        raise TaskError(
            f"none of {len(examples)} examples fits sft.max_length={max_length}; they have "
            f"{sizes[0]} to {sizes[-1]} tokens: set sft.max_length={sizes[-1]} for all of them, or "
            f"{sizes[len(sizes) // 2]} for half"
        )
    if len(kept) < len(examples):
        longest = max(e.tokens for e in examples)
        print(
            f"{len(examples) - len(kept)} of {len(examples)} examples longer than sft.max_length="
            f"{max_length} left out; the longest has {longest} tokens"
        )
    return kept


def lengths_line(examples: Sequence[Example], max_length: int) -> str:
    """Quantiles of prompt + answer, for `--dry-run`."""
    sizes = sorted(e.tokens for e in examples)

    def at(share: float) -> int:
        return sizes[min(len(sizes) - 1, int(share * len(sizes)))]

    parts = [f"{name} {at(s)}" for name, s in (("50%", 0.5), ("90%", 0.9), ("99%", 0.99))]
    over = sum(size > max_length for size in sizes)
    fit = f"{over} longer than sft.max_length={max_length}" if over else "all fit sft.max_length"
    longest = max(len(e.answer) for e in examples)
    return (
        f"lengths of {len(sizes)} examples, prompt + answer in tokens: min {sizes[0]} · "
        f"{' · '.join(parts)} · max {sizes[-1]} (longest answer {longest}); {fit}"
    )


def of_tasks(tasks: Sequence[Task], tokenizer: ChatTokenizer) -> list[Example]:
    """The gold answers of tasks."""
    return [gold_example(t, f"task {t.id}", tokenizer) for t in tasks]


# --- reading the rows of a file


def training_rows(
    path: str, asked: TaskFilter = ALL_TASKS, prompts: str = ""
) -> list[tuple[str, Row]]:
    """(where it stands, row) of a file of texts to imitate that are `asked` for; tasks among them
    are asked in the words of `prompts`.

    Raises `ConfigError` when there is no such file and `TaskError` when it cannot be read, is
    empty, or holds what must not be trained on.
    """
    require_file(path, "data", "tasks (JSONL), chats, or what `assay select` wrote")
    rows = [(where, _plain(row) if is_parquet(path) else row) for where, row in read_rows(path)]
    if not rows:
        raise TaskError(f"{path}: no rows in it")
    rows = [(where, row) for where, row in rows if not asked or asked.accepts_row(row)]
    if not rows:
        raise TaskError(f"{path}: no row is left by {asked.options()}")
    for where, row in rows:
        if row.get("published"):
            raise TaskError(
                f"{where}: a rollout of a published benchmark task; train on generated ones"
            )
        users, tools = _asked_and_told(row)
        short = (v for v in row.values() if isinstance(v, str) and len(v) < _NAME)
        if name := published_database(users, tools, short):
            raise TaskError(
                f"{where}: the chat is about {name}, a published evaluation database; leave the "
                "row out"
            )
    return _in_words(rows, prompts) if prompts else rows


def _in_words(rows: list[tuple[str, Row]], prompts: str) -> list[tuple[str, Row]]:
    words = read_prompts(prompts)
    tasks = {
        where: Task.from_json(row, where)
        for where, row in rows
        if "gold" in row and "prompt" in row
    }
    asked = dict(zip(tasks, words.asked(tasks.values()), strict=True))
    return [
        (where, {**row, **asked[where].to_json()} if asked.get(where) != tasks.get(where) else row)
        for where, row in rows
    ]


def _asked_and_told(row: Row) -> tuple[list[str], list[str]]:
    """(what users say in a row's chat, what tools say)."""
    asked: list[str] = []
    told: list[str] = []
    for name in FIELDS:
        listed = row.get(name)
        for message in listed if isinstance(listed, list | tuple) else ():
            if isinstance(message, Mapping):
                role = ROLES.get(str(message.get("role", message.get("from"))))
                if role in ("user", "tool"):
                    (asked if role == "user" else told).extend(_texts(message))
    return asked, told


def _texts(messages: Any) -> Iterator[str]:
    """The texts of a message, also those in parts."""
    if isinstance(messages, str):
        yield messages
    elif isinstance(messages, Mapping):
        for value in messages.values():
            yield from _texts(value)
    elif isinstance(messages, list | tuple):
        for value in messages:
            yield from _texts(value)


def _plain(row: Row) -> Row:
    """A row of a parquet file, whose messages and tools have no members that are null."""
    return {**row, **{k: without_nulls(row[k]) for k in (*FIELDS, "tools") if row.get(k)}}
