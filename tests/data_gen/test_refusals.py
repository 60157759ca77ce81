"""What cannot be asked for is named in the words of its refusal, with exit status 2; no task is
written."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from dare_worlds import sold_houses
from mixed_tasks import refinement
from own_families import family_file
from small_corpus import write_corpus

import assay
from assay import family as families
from assay.task import write_jsonl

pytest.importorskip("duckdb", reason="needs the extra `build`")
pytestmark = pytest.mark.usefixtures("no_family_of_another_test")

# command → what is added to it, and what the refusal names
REFUSED = {
    "": [
        ("rollot", "no command 'rollot'; did you mean 'rollout'?"),
        ("audit --tasks x --atacks 3", "did you mean '--attacks'?"),
        ("tasks dmeo", "no builder and no family 'dmeo'; did you mean 'demo'?"),
        (
            "tasks revers --family own.py --out out",
            "--family brings reverse; did you mean 'reverse'?",
        ),
    ],
    "audit --tasks": [
        ("nobody.jsonl", "no family 'nobody'"),
        ("one.jsonl one.jsonl", "given twice"),
        ("none.jsonl", "none.jsonl: No such file"),
        ("one.jsonl --attacks -1", "must be 0 or more"),
    ],
    "tasks demo --out out": [
        ("train_slf=3", "train_sft"),
        ("train_sft=many", "train_sft"),
        ("train_sft=-1", "train_sft"),
        ("steady=7", "steady"),
        ("'mappers=[a, b]'", "mappers"),
        ("mappers=1,2", "[a, b]"),
        ("'mappers=[0, 0]'", "mappers"),
        ("mappers=[]", "mappers"),
        ("'mappers=[-1, 2]'", "mappers"),
        ("filter_share=2", "filter_share"),
        ("operators=[clean_ip]", "clean_ip_mapper"),
        ("filters=[]", "filters"),
        ("'directions=[min, min]'", "directions"),
        ("filter_place=middle", "filter_place"),
        ("forms=4", "forms"),
        ("max_chars=119", "max_chars"),
        ("low_margin=1.0", "low_margin"),
        ("difficulty=brutal", "easy, medium, hard"),
        ("heldout", "key=value"),
        ("--corpus short.jsonl", "larger corpus"),
    ],
    "tasks order --out out": [("--corpus short.jsonl", "larger corpus")],
    "tasks reverse --family own.py --out out": [
        ("coutn=3", "unknown key coutn; did you mean count?"),
        ("count=many", "count='many' is str; wanted a whole number"),
        ("letters=middle", "letters='middle'; wanted one of low, up"),
        ("words=a", "words='a'; wanted a list such as [a, b]"),
        ("three", "'three' is not a setting; write key=value"),
    ],
    "tasks cdr --out out": [
        ("--corpus corpus operators.only=[clean_mail]", "clean_mail"),
        ("--corpus corpus paraphrase.url=x", "paraphrase.url"),
    ],
    "tasks semantic --out out": [
        ("", "--pii"),
        ("--pii nowhere", "nowhere"),
        ("--pii short.jsonl", "ai4privacy/pii-masking-400k"),
        ("--pii short.jsonl", "no source_text"),
    ],
    "tasks sql --out out": [
        ("", "no tables"),
        ("--carried --rows 3", "--rows"),
        ("--tables /nowhere", "no such folder"),
    ],
    "tasks lake --lakes empty --out out": [
        ("", "no usable table"),
        ("--writer localhost:1", "starts with http"),
        ("--heldout-share 1", "1: wanted a share from 0 to below 1"),
    ],
    "tasks dare --tables in --databases 2 --workers 1 --out out": [
        ("--target prise", "did you mean 'price'"),
        ("--target xyz", "town"),  # none is near: the columns are listed
        ("--target id", "--target id"),
        ("--target price --target town", "price, town"),
        ("--target town --task-types reg", "no task of reg"),
        ("--features size,agee", "--features agee"),
        ("--features size", "two features"),
        ("--target price --features price,age", "cannot be a feature"),
        ("--target price --features size,price_in_dollars --task-types MM", "price_in_dollars"),
        ("--time town", "'Bonn'"),
        ("--time sold_on --task-types class,reg", "no series"),
        ("--task-types clas", "did you mean 'class'"),
        ("--task-types series,IF", "XF and CF"),
        ("--licence MIT", "no table gave a task"),
        ("--describe column.yaml", "--describe sise"),
        ("--describe table.yaml", "did you mean 'houses'"),
        ("--writer ftp://x --writer-model m", "ftp://x"),
        ("--writer http://x --writer-model m --short", "--short"),
    ],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small inputs."""
    top = tmp_path_factory.mktemp("world")
    for name in ("in", "empty"):
        (top / name).mkdir()
    sold_houses().to_csv(top / "in" / "houses.csv", index=False)
    write_corpus(top / "corpus", 4)
    family_file(top)
    (top / "short.jsonl").write_text('{"id": "a", "text": "Only this one sentence is here."}\n')
    (top / "column.yaml").write_text("columns: {sise: words}")
    (top / "table.yaml").write_text("tables: {house: {title: x}}")
    one = refinement(1, "KEEP", 1).to_json()
    write_jsonl(top / "one.jsonl", [one])
    write_jsonl(top / "nobody.jsonl", [one | {"family": "nobody"}])
    return top


Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    families._added.clear()  # pyright: ignore[reportPrivateUsage]


def refused(words: str, capsys: Said) -> str:
    try:
        status = assay.main(shlex.split(words))
    except SystemExit as stop:  # argparse
        status = stop.code
    assert status == 2 and not list(Path("out").rglob("train*.jsonl"))
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [(f"{command} {more}", said) for command, rows in REFUSED.items() for more, said in rows],
)
def test_what_cannot_be_is_named(words: str, said: str, capsys: Said) -> None:
    assert said in refused(words, capsys)


@pytest.mark.parametrize("words", ["cdr --corpus corpus", "dare --tables in"])
def test_a_builder_without_its_library_names_the_extra(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "[build]" in refused(f"tasks {words} --out out", capsys)
