"""Texts from files in every state: each mistake has one clear outcome."""

import json
import logging
import sys
from collections import Counter

import pytest
from toy_texts import sentences, write_csv

from gan.errors import ConfigError, DataError, GanError
from gan.text import docs, hub
from gan.text.config import TextConfig
from gan.text.dataset import Texts, open_texts, read_texts
from gan.text.table import read_table


@pytest.fixture
def opened(tmp_path, caplog):
    """`opened(text or bytes, name="train.csv", **options)` gives data and what was said of it."""

    def open_(content, name="train.csv", test=None, validation=None, **options):
        def write(name, content):
            path = tmp_path / name
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            return path

        for part, text in (("test", test), ("validation", validation)):
            if text is not None:
                options[f"{part}_file"] = write(f"{part}.csv", text)
        caplog.clear()
        with caplog.at_level(logging.INFO, "gan"):
            config = TextConfig(train_file=write(name, content), validation_share=0.25, **options)
            data = open_texts(config.check())
        said = [message.replace(f"{tmp_path}/", "") for message in caplog.messages]
        return data, said

    return open_


GOOD = "text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(8))


def everything(data):
    """All texts with the names of their classes."""
    rows = [
        (*text, data.class_names[label])
        for part in (data.train, data.validation)
        for text, label in zip(part.texts, part.labels, strict=True)
    ]
    return sorted(rows)


ALL = sorted((f"text {i}", "ab"[i % 2]) for i in range(8))


def test_a_clean_file(opened):
    data, said = opened(GOOD)
    assert data.class_names == ("a", "b")
    assert everything(data) == ALL
    assert said == [
        "train.csv: the text is in text, the class in label",
        "train.csv: 2 of 8 texts are held out for validation",
    ]
    assert Counter(data.validation.labels) == {0: 1, 1: 1}


# --- kinds of files ------------------------------------------------------------------------------

ROWS = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(8)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tsv", GOOD.replace(",", "\t")),
        ("x.csv", GOOD.replace(",", ";")),
        ("x.csv", GOOD.replace(",", "\t")),
        ("x.csv", GOOD.replace("\n", "\r\n")),
        ("x.csv", "\ufeff" + GOOD),
        ("x.csv", GOOD.encode("utf-16")),
        ("X.CSV", GOOD + "\n\n"),
        ("x.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("x.jsonl", "\ufeff" + "\r\n\r\n".join(map(json.dumps, ROWS))),
        ("x.json", json.dumps(ROWS, indent=1)),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 9 else "",
)
def test_every_kind_of_file_holds_the_same(opened, name, content):
    data, _ = opened(content, name)
    assert everything(data) == ALL


def test_a_folder_of_classes(tmp_path):
    for i, (text, name) in enumerate(ALL):
        (tmp_path / "set" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name / f"{i}.txt").write_text(text)
    (tmp_path / "set" / ".git").mkdir()
    (tmp_path / "set" / ".git" / "x.txt").write_text("no")
    assert everything(open_texts(TextConfig(train_file=tmp_path / "set").check())) == ALL
    with pytest.raises(
        DataError, match=r"holds no \.txt files in folders; expected .*CLASS/NAME\.txt"
    ):
        read_table(tmp_path / "set" / "a")


def test_quotes_commas_and_line_breaks_in_a_text(opened):
    rows = [('one, "two"\nthree', "a"), ("four", "b"), ("it's", "a"), ('"', "b")]
    data, _ = opened('text,label\n"one, ""two""\nthree",a\nfour,b\nit\'s,a\n"""",b\n')
    assert everything(data) == sorted(rows)


def test_a_tsvs_quotes_are_quotes_unless_they_enclose_a_cell(opened):
    content = 'text\tlabel\n"so" she said\ta\n"all of ""it"""\tb\nx"y\ta\n"z\tb\n'
    data, _ = opened(content, "x.tsv")
    assert everything(data) == sorted(
        [('"so" she said', "a"), ('all of "it"', "b"), ('x"y', "a"), ('"z', "b")]
    )


def test_other_line_separators_are_part_of_a_text(opened):
    data, _ = opened("text\tlabel\na\u2028b\x0cc\ta\nd\tb\ne\ta\nf\u0085g\tb\n", "x.tsv")
    assert ("a\u2028b\x0cc", "a") in everything(data)


def test_a_pair_of_texts(opened):
    data, said = opened(
        "idx,sentence1,sentence2,label\n" + "".join(f"{i},p{i},q{i},{i % 2}\n" for i in range(8))
    )
    assert ("p3", "q3", "1") in everything(data)
    assert said[0].endswith("the text is in sentence1 and sentence2, the class in label")
    data, said = opened(
        GOOD.replace("text,label", "x,y"), text_columns=("x", "y"), label_column="y"
    )
    assert ("text 3", "b", "b") in everything(data)
    assert not said[0].startswith("the text is in")


# --- encodings -----------------------------------------------------------------------------------


def test_a_file_that_is_not_utf8_is_read_as_windows_1252_and_that_is_said(opened):
    content = "text,label\nplain,a\ncaf\xe9 \x93so\x94,b\nx,a\ny,b\n".encode("latin-1")
    data, said = opened(content)
    assert ("café “so”", "b") in everything(data)
    assert said[0] == "train.csv: line 3 is not UTF-8; read as Windows-1252 (--encoding decides)"
    data, said = opened(content, encoding="latin-1")
    assert ("café \x93so\x94", "b") in everything(data)
    assert not [line for line in said if "UTF-8" in line]
    assert ("\x81", "b") in everything(opened(b"text,label\nx,a\n\x81,b\ny,a\nz,b\n")[0])


def test_encodings_that_cannot_be(opened):
    content = b"text,label\nx,a\n\xff,b\n"
    with pytest.raises(DataError, match=r"line 3 is not utf-8; give the file's encoding, as in"):
        opened(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="encoding: 'utf-9' is unknown; utf-8, cp1252 and utf-16"):
        opened(content, encoding="utf-9")
    with pytest.raises(DataError, match=r"holds bytes that no text has; is it a text file\?"):
        opened(b"text,label\n\x00\x01,a\n")


# --- rows ----------------------------------------------------------------------------------------


def test_rows_that_cannot_be_used_are_left_out_and_counted(opened):
    extra = 'text,label\n,a\n  ,b\nno class,\n"x, y",a,more,\nz,b,,\ntext,label\n'
    data, said = opened(GOOD + extra)
    assert everything(data) == sorted([*ALL, ("z", "b")])
    assert said[:4] == [
        "train.csv: rows that repeat the header, left out: 2 (line 10, line 16)",
        "train.csv: rows with more cells than the header, left out: 1 (line 14)",
        "train.csv: the text is in text, the class in label",
        "train.csv: rows without text, left out: 2 (line 11, line 12)",
    ]
    assert said[4] == "train.csv: rows without label, left out: 1 (line 13)"


def test_a_file_without_header(opened):
    data, said = opened("a\ttext 0\nb\ttext 1\na\ttext 2\nb\ttext 3\n", "x.tsv")
    assert everything(data) == ALL[:4]
    assert said[:2] == [
        "x.tsv: has no header; its columns are called 1, 2, ...",
        "x.tsv: the text is in 2, the class in 1",
    ]


def test_a_spam_collection_as_it_is_found(opened):
    """Latin-1, unnamed empty columns, columns called v1 and v2, equal texts, entities."""
    lines = ["v1,v2,,,"]
    lines += [f'{("ham", "spam")[i % 2]},"Win £{i} now, call 0{i}",,,' for i in range(20)]
    lines += ["ham,Ok lar...,,,"] * 5
    data, said = opened("\r\n".join(lines).encode("latin-1"))
    assert data.class_names == ("ham", "spam")
    assert len(data.train) + len(data.validation) == 25
    assert said[1] == "train.csv: the text is in v2, the class in v1"
    assert not {text for (text,) in data.train.texts} & {text for (text,) in data.validation.texts}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "", r"x\.csv: it is empty"),
        ("x.csv", "text,label\n", r"x\.csv: it holds no rows"),
        ("x.csv", 'text,label\nx,a\n"y,b\nz,a\n', "the quote that opens on line 3 is never closed"),
        ("x.csv", "text,label,text\nx,a,y\n", "more than one column is called text"),
        ("x.csv", "text,label\nx,\n,b\n", "no row has both a text and a label"),
        ("x.jsonl", '{"text": "x"}\n{"text":\n', r"x\.jsonl: line 2 is no JSON: "),
        ("x.jsonl", '"text"\n', r'line 1 is no object such as {"text": ..., "label": ...}'),
        ("x.json", "[1", r"x\.json: is no JSON"),
        ("x.jsonl", '{"text": ["a"], "label": 1}\n{"text": "b"}', "line 1 holds no text"),
        ("x.xlsx", "", r"\.xlsx is none of the kinds \.csv, \.tsv, \.jsonl, or a folder"),
        ("x", "", "no suffix is none of the kinds"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(opened, name, content, message):
    with pytest.raises(DataError, match=message):
        opened(content, name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv: there is no such file or folder"):
        read_table(tmp_path / "nowhere.csv")


# --- columns and classes -------------------------------------------------------------------------


def test_an_unknown_column_lists_those_there(opened):
    with pytest.raises(
        ConfigError, match=r"text_columns: 'body' is no column of .*; it has text, label"
    ):
        opened(GOOD, text_columns=("body",))
    with pytest.raises(
        ConfigError, match=r"label_column: 'y' is no column of .*; it has text, label"
    ):
        opened(GOOD, label_column="y")
    with pytest.raises(
        ConfigError, match=r"text_columns: 'text' is no column of .*validation\.csv"
    ):
        opened(GOOD, validation="body,label\nx,a\n")


def test_columns_that_cannot_be_guessed(opened):
    with pytest.raises(
        ConfigError, match=r"label_column: none of .* looks like a class \(x, y\); name"
    ):
        opened("x,y\n" + "".join(f"t{i},u{i}\n" for i in range(9)))


def test_labels_start_wherever_they_do(opened):
    data, _ = opened("text,label\n" + "".join(f"t{i},{(1, 2, 10)[i % 3]}\n" for i in range(9)))
    assert data.class_names == ("1", "2", "10")
    assert {label for label in data.train.labels} == {0, 1, 2}


def test_whole_numbers_are_classes_however_they_are_written(opened):
    """As a table program writes integers once a cell was empty."""
    data, _ = opened("text,label\nt0,0.0\nt1,1.0\nt2,0\nt3,1\n")
    assert data.class_names == ("0", "1")
    rows = [{"text": f"t{i}", "label": bool(i % 2)} for i in range(4)]
    data, _ = opened("\n".join(map(json.dumps, rows)), "x.jsonl")
    assert data.class_names == ("False", "True")


def test_a_label_column_of_floats_is_refused(opened):
    with pytest.raises(
        ConfigError, match=r"label of .* holds fractions, such as 0\.5 \(line 3\); a class"
    ):
        opened("text,label\nt0,1\nt1,0.5\nt2,1\nt3,0\n")


def test_labels_that_are_no_classes(opened):
    with pytest.raises(
        DataError, match="label is always 'a'; a classifier needs two classes or more"
    ):
        opened("text,label\nx,a\ny,a\n")
    with pytest.raises(DataError, match=r"label has 4 classes in 4 rows; is it the right column\?"):
        opened("text,label\nx,a\ny,b\nz,c\nw,d\n")


def test_a_label_unseen_in_training_is_named(opened):
    message = r"validation\.csv: label 'c' is not one of the training texts' \(a, b\): line 3"
    with pytest.raises(DataError, match=message):
        opened(GOOD, validation="text,label\nx,a\ny,c\n")


# --- parts ---------------------------------------------------------------------------------------


def test_the_split_is_stratified_seeded_and_keeps_equal_texts_together(opened):
    rows = [(f"t{i % 40}", "ab"[i % 40 < 30]) for i in range(80)]
    content = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    first, same, other = (opened(content, seed=seed)[0].validation for seed in (0, 0, 1))
    assert first == same
    assert first != other
    assert Counter(first.labels) == {0: 4, 1: 14}  # whole pairs, a quarter at most
    assert set(Counter(first.texts).values()) == {2}


def test_a_test_file_with_and_without_labels(opened):
    data, _ = opened(GOOD, test="label,text\nb,x\na,y\n")
    assert data.test == Texts([("x",), ("y",)], [1, 0])
    for unlabelled in (
        'text\nx\n""\ny\n',
        "text,label\nx,\n,\ny,\n",
        'text,label\nx,-1\n"",-1\ny,-1\n',
    ):
        data, _ = opened(GOOD, test=unlabelled)
        assert data.test == Texts([("x",), ("",), ("y",)], None)


def test_texts_alone_are_enough_to_predict(tmp_path):
    path = write_csv(tmp_path / "x.csv", [("1", "hello there"), ("2", "")], ("id", "body"))
    assert read_texts(path) == Texts([("hello there",), ("",)], None)
    with pytest.raises(
        ConfigError, match=r"text_columns: 'text' is no column of .*; it has id, body"
    ):
        read_texts(path, ("text",))


def test_the_classes_can_be_put_into_another_order(opened):
    data, _ = opened(GOOD, test="text,label\nx,b\n")
    turned = data.with_classes(("b", "a"))
    assert everything(turned) == everything(data)
    assert turned.test.labels == [0]
    assert turned.fingerprint != data.fingerprint


def test_the_fingerprint_is_of_the_texts(opened):
    prints = {
        opened(GOOD)[0].fingerprint,
        opened(GOOD.replace("text 1", "text one"))[0].fingerprint,
    }
    assert len(prints | {opened(GOOD)[0].fingerprint}) == 2


# --- the embedded texts --------------------------------------------------------------------------


def test_the_embedded_texts_are_split_by_module(monkeypatch):
    table = docs.python_docs()
    monkeypatch.setattr("gan.text.dataset.python_docs", lambda: table)
    assert {"text", "label", "group"} == set(table.columns)
    count = Counter(table.column("label"))
    assert set(count) <= set(docs.PARTS)
    assert len(table.rows) > 2000
    assert max(count.values()) < len(table.rows) / 2
    assert len(set(table.column("text"))) == len(table.rows)
    group_of = {(row["text"],): row["group"] for row in table.rows}
    data = open_texts(TextConfig(validation_share=0.2).check())
    learned, held_out = (
        {group_of[t] for t in part.texts} for part in (data.train, data.validation)
    )
    assert learned
    assert not learned & held_out
    assert 0.15 < len(data.validation) / len(table.rows) < 0.22
    assert min(Counter(data.validation.labels).values()) > 30


def test_a_python_without_its_sources(monkeypatch, tmp_path):
    monkeypatch.setattr("gan.text.docs.sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(DataError, match="holds too few sources of the standard library"):
        docs.python_docs()


# --- the hub -------------------------------------------------------------------------------------


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_an_unreachable_hub_says_at_once_what_works_without(no_hub, monkeypatch):
    message = (
        r"^model: x needs http://127\.0\.0\.1:9, but: .*refused; what needs no hub: --model small"
    )
    with pytest.raises(GanError, match=message):
        hub.need_hub("model: x")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        GanError, match="model: x is not in the hub's cache, and HF_HUB_OFFLINE is set"
    ):
        hub.need_hub("model: x")


def test_a_hub_that_answers_anything_is_there(monkeypatch):
    import http.server
    import threading

    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    hub.need_hub("model: x")  # answered with an error, but answered
    thread.join()
    server.server_close()


def test_a_data_set_of_the_hub_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        GanError, match=r"dataset: glue/mrpc needs the package datasets: pip install"
    ):
        hub.hub_tables("glue/mrpc")


@pytest.fixture
def datasets(monkeypatch, tmp_path_factory):
    pytest.importorskip("datasets", reason="needs: pip install datasets")
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    datasets.disable_progress_bars()
    return datasets


def test_a_data_set_has_the_names_of_its_classes(datasets, tmp_path):
    features = datasets.Features(
        {
            "sentence1": datasets.Value("string"),
            "sentence2": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["different", "equal"]),
        }
    )
    parts = {}
    for name, labels in {"train": [0, 1] * 4, "validation": [1, 0], "test": [-1, -1, -1]}.items():
        rows = [{"sentence1": f"p{i}", "sentence2": "q", "label": y} for i, y in enumerate(labels)]
        parts[name] = datasets.Dataset.from_list(rows, features=features)
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load_dataset", lambda name, part: datasets.load_from_disk(name))
        data = open_texts(TextConfig(dataset=str(tmp_path / "saved")).check())
    assert data.class_names == ("different", "equal")
    assert data.validation == Texts([("p0", "q"), ("p1", "q")], [1, 0])
    assert data.test == Texts([("p0", "q"), ("p1", "q"), ("p2", "q")], None)


def test_a_folder_is_a_data_set_too(datasets, tmp_path):
    for part in ("train", "validation"):
        rows = [json.dumps({"text": t, "label": n}) for t, n in sentences(8)]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(rows))
    data = open_texts(TextConfig(dataset=str(tmp_path)).check())
    assert (len(data.train), len(data.validation), data.test) == (8, 8, None)


def test_a_data_set_that_is_not_there(datasets, no_hub):
    with pytest.raises(GanError, match=r"dataset: glue/mrpc needs http.*python-docs"):
        hub.hub_tables("glue/mrpc")
