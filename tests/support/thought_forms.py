"""Forms in which models think before they answer, as the families spell them. `§` is the answer."""

from __future__ import annotations

HERE = "§"
_TAGGED = "<status>DROP</status><clean_text>no</clean_text>"
_CALL = '<tool_call>\n{"name": "t", "arguments": {}}\n</tool_call>'

FORMS: dict[str, str] = {
    "no thought": "§",
    "DeepSeek-R1, Qwen3, GLM, MiniMax, Nemotron, Phi-4": "<think>\nhm\n</think>\n\n§",
    "nothing thought, as Qwen3 with thinking off": "<think>\n\n</think>\n\n§",
    "no space around": "<think>hm</think>§",
    "space before": "\n  <think>hm</think>\n§",
    "several in a row": "<think>a</think>\n<think>b</think>\n§",
    "two kinds in a row": "<thinking>a</thinking>\n<reflection>b</reflection>\n§",
    "nested": "<think>a <think>b</think> c</think>§",
    "nested, of a kind that no template opens": "<thinking>a <thinking>b</thinking> c</thinking>§",
    "an opening mark too many": "<think>the tag <think> opens it</think>§",
    "opened twice, by template and model": "<think>\n<think>\nhm</think>\n\n§",
    "opened by the template": "I look at it.\n</think>\n\n§",
    "opened by the template, nothing thought": "\n</think>\n\n§",
    "opened by the template, closed twice": "one</think> two</think>§",
    "in a code fence": "```\n<think>hm</think>\n```\n§",
    "in a labelled code fence": "```xml\n<think>\nhm\n</think>\n```\n\n§",
    "a code fence in the thought": "<think>\n```\nx = 1\n```\n</think>\n§",
    "an open code fence in the thought": "<think>\n```python\nx = 1\n</think>\n§",
    "the answer's tags in the thought": f"<think>{_TAGGED}?</think>§",
    "the answer's tags, opened by the template": f"{_TAGGED} or not</think>\n§",
    "a tool call in the thought": f"<think>{_CALL}</think>§",
    "an open tool call in the thought": "<think>a <tool_call> tag</think>§",
    "a python block in the thought": "<think>\n```python\nprint(1)\n```\n</think>\n§",
    "JSON in the thought": '<think>{"safe": false}</think>\n§',
    "a block of JSON in the thought": "<think>\n```json\n[]\n```\n</think>\n§",
    "SQL in the thought": "<think>\n```sql\nSELECT 0\n```\n</think>\n§",
    "the closing mark spoken of": "<think>I end with `</think>` and answer.</think>§",
    "the closing mark in a string": '<think>split("</think>") would do</think>§',
    "another family's mark in the thought": "<think>no [THINK] and no </thought> here</think>§",
    "after the answer": "§\n<think>that is right</think>",
    "before and after the answer": "<think>a</think>§<think>b</think>\n",
    "two after the answer": "§\n<think>a</think>\n<think>b</think>",
    "words before it": "Let me see. <think>hm</think>\n§",
    "Seed-OSS": "<seed:think>\nhm\n</seed:think>§",
    "Seed-OSS, with its budget": (
        "<seed:think>a\n<seed:cot_budget_reflect>9 used</seed:cot_budget_reflect>\nb</seed:think>§"
    ),
    "Magistral": "[THINK]hm[/THINK]§",
    "Kimi-VL": "◁think▷hm◁/think▷§",
    "OpenThinker": "<|begin_of_thought|>\n\nhm\n\n<|end_of_thought|>\n\n§",
    "OpenThinker, with its solution": (
        "<|begin_of_thought|>hm<|end_of_thought|>\n\n"
        "<|begin_of_solution|>\n\n§\n\n<|end_of_solution|>"
    ),
    "gpt-oss": (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>§"
    ),
    "gpt-oss, to its last token": (
        "<|channel|>analysis<|message|>hm<|end|>"
        "<|start|>assistant<|channel|>final<|message|>§<|return|>"
    ),
    "gpt-oss, two analyses": (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
        "<|end|><|start|>assistant<|channel|>final<|message|>§"
    ),
    "gpt-oss, nothing analysed": "<|channel|>final<|message|>§",
    "gpt-oss, without its control tokens": "analysisWe look at it.assistantfinal§",
    "Gemma 4": "<|channel>thought\nhm<channel|>\n§",
    "EXAONE Deep": "<thought>\nhm\n</thought>\n\n§",
    "EXAONE Deep, opened by the template": "hm\n</thought>\n\n§",
    "Granite 3.2": "Here is my thought process:\nhm\n\nHere is my response:\n§",
    "Granite 3.2, short": "Here's my thought process:\nhm\nHere's my response: §",
    "Granite 3.3": "<think>hm</think>\n<response>§</response>",
    "Command A": "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>§<|END_RESPONSE|>",
    "Command A, cut": "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>§",
    "Command A, nothing thought": "<|START_RESPONSE|>§<|END_RESPONSE|>",
    "Hunyuan": "<think>\nhm\n</think>\n<answer>\n§\n</answer>",
    "ERNIE": "hm\n</think>\n\n\n<response>\n§\n</response>\n",
    "Apriel": "Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\n§\n[END FINAL RESPONSE]",
    "Apriel, opened by the template": "hm\n[BEGIN FINAL RESPONSE]\n§\n[END FINAL RESPONSE]<|end|>",
    "Reflection": "<thinking>a <reflection>b</reflection> c</thinking>\n<output>\n§\n</output>",
    "<thinking>": "<thinking>\nhm\n</thinking>\n§",
    "<reasoning>": "<reasoning>hm</reasoning>\n§",
    "other scripts": "<think>まず考える。Ответ? 先想一下</think>\n§",
    "a long thought": f"<think>{'hm ' * 5000}</think>§",
}

UNENDED: dict[str, str] = {
    "cut": "<think>hm",
    "cut, with an answer in it": f"<think>perhaps {_TAGGED}",
    "cut, with a call in it": f"<think>{_CALL}",
    "cut at the mark": "<think>",
    "cut, the closing mark only spoken of and no more": "<think>`<think>` is what it begins with",
    "the second of two": "<think>a</think><think>b",
    "Seed-OSS, cut": "<seed:think>hm",
    "Magistral, cut": "[THINK]hm",
    "gpt-oss, cut": "<|channel|>analysis<|message|>hm",
    "Command A, cut in the thought": "<|START_THINKING|>hm",
    "in a code fence, cut": "```\n<think>hm",
}

TEXT: dict[str, str] = {
    "no mark": "a < b, and think of it",
    "a mark in the middle that nothing closes": "The tag <think> opens a thought.",
    "a mark in quotes": 'Split at "</think>" first.',
    "a mark in back quotes": "Split at `</think>` first.",
    "words that begin a thought, without their end": "Here is my thought process:\n1. Look.\n```",
    "analysis": "analysis of the data: 5",
    "a wrapper without a thought": "<answer>5</answer>",
    "an HTML element": "<output>5</output>",
}


def filled(form: str, answer: str) -> str:
    return form.replace(HERE, answer)
