"""Tasks of the demo's builders."""

from __future__ import annotations

from dataclasses import replace

from assay.task import Task
from data_gen.corpora import Corpus
from data_gen.demo.refinements import DemoBuilder
from data_gen.demo.settings import DemoTaskSettings


def demo_splits(corpus: Corpus, settings: DemoTaskSettings, seed: int) -> tuple[list[Task], ...]:
    """(SFT, RL, held-out) tasks."""
    found = DemoBuilder(replace(settings, validation=0), seed).splits(corpus)
    return found["train_sft"], found["train_rl"], found["heldout"]
