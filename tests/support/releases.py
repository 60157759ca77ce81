"""Stand-ins of the three releases: their files and functions by name, in words and code of ours."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from textwrap import dedent
from types import ModuleType

RUNNER = '''
STYLES = ("a", "b")
SYSTEM: str = (
    "Do as you are told. "
    "Nothing else."
)
LAST = "{json}"
SHOWN = (
    {"ask": "Drop {it}.", "text": "it", "out": "<status>DROP</status>"},
    {"ask": "Keep it.", "text": "all", "out": "<status>KEEP</status>"},
)


def _variants(row):
    found = row.get("prompt_variants")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _hint():
    return "<status>…</status>" " and " + "<clean_text>…</clean_text>"


def _plain(row, variant):
    """The request of most modes."""
    ask, text = variant.get("user_requirement") or "", row.get("input_text") or ""
    form = row.get("output_format")
    if form == "json":
        return f"{ask} as JSON {{}}:\\n{text}\\n" + LAST
    if form == "json_and_tagged_text":
        return f"{ask} as both:\\n{text}"
    return f"{ask}\\n<{text}>\\nAnswer: {_hint()}."


def _shots(row, variant, *, shown):
    parts = []
    for number, one in enumerate(shown, start=1):
        parts.append("\\n".join([f"No. {number}", one["ask"], one["text"], one["out"]]))
    parts.append(_plain(row, variant))
    return "\\n\\n".join(part for part in parts if part.strip())


def _render(row, variant, *, mode, shown=None):
    if row.get("output_format") in {"json", "json_and_tagged_text"}:
        return _plain(row, variant)
    if mode == "few_shot":
        return _shots(row, variant, shown=shown or [])
    if mode == "plan_first":
        return "Plan. " + _plain(row, variant)
    if mode == "state_aware":
        return "States. " + _plain(row, variant)
    return _plain(row, variant)


def _infer_one(backend, row, index, *, prompt_mode, candidate_rows):
    found = _variants(row)
    variant = found[index] if index < len(found) else found[0]
    shown = None
    if prompt_mode == "few_shot":
        shown = [dict(one) for one in SHOWN]
    prompt = _render(row, variant, mode=prompt_mode, shown=shown)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    try:
        return backend._call_once(messages)
    except ValueError:
        return ""
'''

TOOL = """
def merged(d, **more):
    return {**d, **more}


class python_executor:
    name = "python_executor"
    tool_description = "Runs code for {timeout} s, {max_file_size_mb} MB, {max_turns} times."
    tool_parameters = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "What to run."},
            "files_to_load": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to open.",
            },
            "files_to_save": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What to keep.",
            },
        },
        "required": ["code", "files_to_load", "files_to_save"],
    }

    def get_tool_description(self, model, config):
        bounds = {
            "timeout": config.tool.python_executor.get("timeout", 7),
            "max_turns": config.get("max_turn", 7),
            "max_file_size_mb": config.tool.python_executor.get("max_file_size_mb", 7),
        }
        if "claude" in model.lower():
            return {"name": self.__class__.name}
        return {
            "type": "function",
            "function": {
                "name": self.__class__.name,
                "description": self.__class__.tool_description.format(**bounds),
                "parameters": merged(self.__class__.tool_parameters, additionalProperties=False),
                "strict": True,
            },
        }
"""

PROMPT_MANAGER = """
def prepare_active_sequence(
    example_data, dataset_name, model_path, tokenizer, tool_use_type="prompt", search=5
):
    question = example_data["question"]
    if isinstance(question, list) and question and isinstance(question[0], str):
        question = question[0]
    prompt = []
    if "System" in example_data:
        prompt.append({"role": "system", "content": example_data["System"]})
    prompt.append({"role": "user", "content": "" + question})
    return prompt
"""

PROMPTS = '''
QUESTION_PROMPT = """Of {query}: {file_names} at {file_paths} hold
{data}
as {example_json} and {{"main-task": 1}}
"""
QUESTION_PROMPT_NO_DATA = "Of {query}: {file_names} at {file_paths}, as {example_json}"
'''

SYSTEM = '''
import json
import os

from .baseline_prompts import QUESTION_PROMPT, QUESTION_PROMPT_NO_DATA
from .baseline_utils import get_table_string


class BaselineLLMSystem:
    def _init_output_dir(self, query_id):
        self.question_output_dir = self.output_dir

    def get_input_data(self):
        """The tables as text."""
        text = ""
        for name, data in self.dataset.items():
            if self.verbose: print(f"{name} is read")
            text += f"\\nFile {name}: {data.dtypes}\\n"
            text += get_table_string(data, row_limit=3)
            text += "\\n" + "=" * 4
        return text

    def generate_error_handling_prompt(self, code_fp, error_fp, output_fp):
        with open(code_fp, "r") as f:
            code = f.read()
        with open(error_fp, "r") as f:
            errors = f.read()
        with open(output_fp, "r") as f:
            outputs = f.read()
        prompt = f"""
        Mend {code}
        which says {errors}
        and prints {outputs}
        """
        return prompt

    def generate_prompt(self, query):
        data = self.get_input_data()
        names = list(self.dataset.keys())
        paths = [os.path.join(self.dataset_directory, name) for name in names]
        example = {"id": "main-task", "query": query, "subtasks": []}
        if self.supply_data_snippet:
            prompt = QUESTION_PROMPT.format(
                query=query, file_names=str(names), data=data,
                example_json=json.dumps(example, indent=2), file_paths=str(paths),
            )
        else:
            prompt = QUESTION_PROMPT_NO_DATA.format(
                query=query, file_names=str(names),
                example_json=json.dumps(example, indent=2), file_paths=str(paths),
            )
        with open(os.path.join(self.question_output_dir, "prompt.txt"), "w") as f:
            f.write(prompt)
        return prompt

    def run_one_shot(self, query, query_id):
        self._init_output_dir(query_id)
        prompt = self.generate_prompt(query)
        if self.debug:
            print(prompt)
        messages = [
            {"role": "system", "content": "You know data."},
            {"role": "user", "content": prompt},
        ]
        return self.llm(messages)

    def run_few_shot(self, query, query_id):
        prompt = self.generate_prompt(query)
        messages = [{"role": "system", "content": "You know data."}]
        for number in range(4):
            messages.append({"role": "user", "content": prompt})
            messages.append({"role": "assistant", "content": self.llm(messages)})
            output_fp, error_fp = self.execute_code(code_fp, number)
            prompt = self.generate_error_handling_prompt(code_fp, output_fp, error_fp)

    def process_dataset(self, folder):
        self.dataset = {}
'''

UTILITIES = """
def get_table_string(table, row_limit=100):
    return table.head(row_limit).to_csv()
"""

HARNESS = """
class Executor:
    def run_task(self, task, parent_task_query=None):
        if self.verbose:
            print(f"query: {task['query']}")
        if parent_task_query is not None:
            query = f"For {parent_task_query}, say:\\n {task['query']} \\n"
        else:
            query = task["query"]
        return self.system.serve_query(query=query, query_id=task["id"])
"""

FILES = {
    "refinement": {"src/cdrbench_v3/run_inference.py": RUNNER},
    "python_executor": {
        "scripts/tools/python_executor/python_executor.py": TOOL,
        "scripts/agentic_reason/prompt_manager.py": PROMPT_MANAGER,
    },
    "ds_guru": {
        "systems/dsguru/baseline_system.py": SYSTEM,
        "systems/dsguru/baseline_prompts.py": PROMPTS,
        "systems/dsguru/baseline_utils.py": UTILITIES,
        "benchmark/benchmark.py": HARNESS,
    },
}


def write_release(folder: Path, name: str, **changes: str) -> Path:
    """The stand-in of a kind's release; `changes` replaces texts of its files, old by new."""
    for path, text in FILES[name].items():
        for old, new in changes.items():
            text = text.replace(old.replace("__", " "), new)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(dedent(text), encoding="utf-8")
    return folder


def imported(path: Path) -> ModuleType:
    """A file of a stand-in, really imported: what a reading of it is held against."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
