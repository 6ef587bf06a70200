"""Data of one's own: folders of images of any size and kind, tables, what is wrong with them, answers about them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sharp_cli import data
from sharp_client.testing import FakeServer

Sharp = Any
KINDS = ("png", "jpg", "webp", "bmp")


def paint(folder: Path, each: int = 6, sizes: tuple[int, ...] = (6, 9, 13), mode: str = "RGB") -> Path:
    """Two classes of images in every format, of several sizes."""
    for label, shade in (("dark", 20), ("light", 230)):
        (folder / label).mkdir(parents=True)
        for index in range(each):
            side = sizes[index % len(sizes)]
            picture = Image.new("L", (side, side + (len(sizes) > 1)), shade + index).convert(mode)
            picture.save(folder / label / f"{index}.{KINDS[index % 4]}")
    return folder


def spoil(folder: Path) -> list[str]:
    """Three files that are no images, whatever they are called; gives their names."""
    whole = (folder / "dark" / "0.png").read_bytes()
    contents = {"cut.png": whole[: len(whole) // 2], "empty.jpg": b"", "text.webp": b"not an image"}
    for name, content in contents.items():
        (folder / "dark" / name).write_bytes(content)
    return sorted(contents)


def test_images_of_mixed_sizes_and_kinds_are_learned_and_predicted_without_saying_their_size_again(
    sharp: Sharp, server: FakeServer, tmp_path: Path
) -> None:
    folder = paint(tmp_path / "shades")
    done = sharp("learn", str(folder), "--resize", "8x10")
    assert done.code == 0, done.err
    made = server.learners["shades"]
    assert made.input_shape == [3, 8, 10] and made.config.overrides["architecture.resize"] == "true"
    Image.new("RGB", (40, 31), "white").save(tmp_path / "new.bmp")
    answer = sharp("predict", str(tmp_path / "new.bmp"), str(folder), "--json").json()
    assert answer["predictions"][0]["label"] == "light" and len(answer["predictions"]) == 13
    assert sharp("learn", str(folder)).code == 0  # nor when it is taught again
    assert sharp("evaluate", str(folder)).code == 0


def test_grey_images_make_a_grey_learner_and_may_be_taught_to_a_coloured_one(
    sharp: Sharp, server: FakeServer, tmp_path: Path
) -> None:
    grey, coloured = paint(tmp_path / "grey", mode="L"), paint(tmp_path / "coloured")
    for file in grey.rglob("*.webp"):
        file.unlink()  # which knows no grey
    assert sharp("learn", str(grey), "--resize", "8").code == 0 and server.learners["grey"].input_shape == [1, 8, 8]
    assert sharp("learn", str(coloured), "--resize", "8").code == 0
    assert sharp("learn", str(grey), "--resize", "8", "-l", "coloured").code == 0


def test_a_learner_that_is_there_is_not_made_over(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    folder = paint(tmp_path / "shades")
    assert sharp("learn", str(folder), "--resize", "8").code == 0
    other = sharp("learn", str(folder), "--resize", "9")
    assert other.code == 1 and "other settings" in other.err and "--learner" in other.err
    assert server.learners["shades"].episodes_learned == 1


def test_a_backbone_is_set_up_with_size_resizing_and_normalisation(
    sharp: Sharp, server: FakeServer, tmp_path: Path
) -> None:
    folder = paint(tmp_path / "photos", mode="L")
    words = ("--backbone", "resnet18:layer3", "--weights", "resnet18.pth")
    assert sharp("learn", str(folder), *words).code == 0
    made = server.learners["photos"]
    settings = {key: value for key, value in made.config.overrides.items() if key != "architecture.backbone"}
    assert made.input_shape == [3, 224, 224]
    assert json.loads(made.config.overrides["architecture.backbone"]) == {
        "model": "resnet18", "layer": "layer3", "weights": "resnet18.pth"
    }  # fmt: skip
    assert settings == {
        "architecture.kind": "backbone",
        "architecture.mean": "[0.485, 0.456, 0.406]",
        "architecture.std": "[0.229, 0.224, 0.225]",
        "architecture.resize": "true",
    }
    for half in (words[:2], words[2:]):
        alone = sharp("learn", str(folder), *half, "-l", "other")
        assert alone.code == 2 and "come together" in " ".join(alone.err.replace("│", " ").split())
    assert "other" not in server.learners


def test_a_file_of_weights_on_this_machine_is_given_to_the_server(
    sharp: Sharp, server: FakeServer, tmp_path: Path
) -> None:
    folder, file = paint(tmp_path / "photos"), tmp_path / "resnet18.pth"
    file.write_bytes(b"weights")
    words = ("learn", str(folder), "--backbone", "resnet18", "--weights")
    for _ in range(2):
        assert sharp(*words, str(file)).code == 0
    [name] = server.weights
    assert name == f"{hashlib.sha256(b'weights').hexdigest()}.pth" and server.weights[name] == b"weights"
    backbone = json.loads(server.learners["photos"].config.overrides["architecture.backbone"])
    assert backbone == {"model": "resnet18", "layer": "avgpool", "weights": name}
    missing = sharp(*words, str(tmp_path / "missing.pth"), "-l", "other")
    assert missing.code == 2 and "there is no file" in missing.err
    file.write_bytes(b"")
    empty = sharp(*words, str(file), "-l", "other")
    assert empty.code == 1 and "resnet18.pth" in empty.err and "is empty" in empty.err
    assert set(server.learners) == {"photos"}


@pytest.mark.parametrize(("sizes", "said"), [((6, 9), "2 sizes, from 7×6 to 10×9"), ((70,), "70×70, larger than")])
def test_images_that_need_options_say_which_and_make_no_learner(
    sizes: tuple[int, ...], said: str, sharp: Sharp, server: FakeServer, tmp_path: Path
) -> None:
    done = sharp("learn", str(paint(tmp_path / "photos", sizes=sizes)))
    assert done.code == 1 and said in done.err and "--resize" in done.err and "--backbone resnet18" in done.err
    assert not server.learners


@pytest.mark.parametrize("size", ["0", "8x", "x8", "big", "8x8x8", "-4"])
def test_a_size_that_is_none_is_refused(size: str, sharp: Sharp, tmp_path: Path) -> None:
    done = sharp("learn", str(paint(tmp_path / "photos")), f"--resize={size}")
    assert done.code == 2 and "no size such as" in " ".join(done.err.replace("│", " ").split())


def test_bad_files_are_named_and_nothing_is_sent(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    folder = paint(tmp_path / "shades", sizes=(6,))
    names = spoil(folder)
    done = sharp("learn", str(folder))
    assert done.code == 1 and "3 items can't be used" in done.err and "--skip-bad" in done.err
    assert all(f"dark/{name}: is " in done.err for name in names) and not server.learners


def test_bad_files_are_skipped_on_request_and_listed_at_the_end(
    sharp: Sharp, server: FakeServer, tmp_path: Path
) -> None:
    folder = paint(tmp_path / "shades", sizes=(6,))
    names = spoil(folder)
    done = sharp("learn", str(folder), "--skip-bad")
    assert done.code == 0 and "12 examples are durable" in done.out
    listed = done.out.split("skipped 3 items that can't be used:")[1]
    assert all(f"dark/{name}: is " in listed for name in names)
    summary = sharp("learn", str(folder), "--skip-bad", "--json").lines()[-1]
    assert sorted(Path(item["place"]).name for item in summary["skipped"]) == names
    assert sharp("evaluate", str(folder)).code == 1 and sharp("evaluate", str(folder), "--skip-bad").code == 0


def test_what_is_passed_over_is_said(sharp: Sharp, tmp_path: Path) -> None:
    folder = paint(tmp_path / "shades", sizes=(6,))
    (folder / "notes.txt").write_text("mine")
    (folder / "dark" / "list.csv").write_text("a,b")
    (folder / ".hidden").write_text("nobody's business")
    Image.new("L", (6, 6)).save(folder / "loose.png")
    done = sharp("learn", str(folder))
    assert done.code == 0 and "1 × .csv" in done.err and "1 × .txt" in done.err and "hidden" not in done.err
    assert "1 images in" in done.err and "no folder of a class" in done.err


def test_nested_folders_ask_which_level_is_the_class(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    for part in ("train", "test"):
        paint(tmp_path / "nested" / part, sizes=(6,))
    asked = sharp("learn", str(tmp_path / "nested"))
    said = " ".join(asked.err.replace("│", " ").split())
    assert asked.code == 2 and "1: 2 classes (test, train); 2: 2 classes (dark, light)" in said
    assert "--class-level" in said and not server.learners
    for level, classes in (("1", {"test", "train"}), ("2", {"dark", "light"}), ("-1", {"dark", "light"})):
        assert sharp("learn", str(tmp_path / "nested"), "--class-level", level, "-l", f"level{level}").code == 0
        assert set(server.learners[f"level{level}"].classes) == classes
    assert sharp("learn", str(tmp_path / "nested"), "--class-level", "3").code == 2


def test_on_a_terminal_the_question_can_be_answered(
    sharp: Sharp, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("train", "test"):
        paint(tmp_path / "nested" / part, sizes=(6,))
    monkeypatch.setattr("sharp_cli.data.folders.is_answered", lambda: True)
    assert sharp("learn", str(tmp_path / "nested"), input="1\n").code == 0
    assert set(server.learners["nested"].classes) == {"test", "train"}


def test_the_file_that_the_server_refuses_is_named(sharp: Sharp, server: FakeServer, tmp_path: Path) -> None:
    assert sharp("learn", str(paint(tmp_path / "small", sizes=(6,)))).code == 0
    other = paint(tmp_path / "other", sizes=(6,))
    Image.new("RGB", (7, 7)).save(other / "light" / "3.png")
    done = sharp("learn", str(other), "-l", "small", "--batch-size", "2")
    assert done.code == 1 and "light/3.png: " in done.err and "--resize" in done.err


# ---- tables ---------------------------------------------------------------------------------------------------------

ROWS = [["1.0", "2.0", "north", "rose"], ["1.1", "2.1", "south", "rose"], ["5.0", "6.0", "north", "tulip"]]


def write_csv(path: Path, rows: list[list[str]], heads: list[str] | None, separator: str = ",") -> Path:
    lines = [heads, *rows] if heads else rows
    path.write_text("".join(separator.join(row) + "\n" for row in lines))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("heads", [None, ["width", "height", "garden", "Label"], ["width", "height", "garden", "kind"]])
def test_tables_of_vectors_are_learned(heads: list[str] | None, separator: str, tmp_path: Path) -> None:
    found = data.load(str(write_csv(tmp_path / "flowers.csv", ROWS, heads, separator)))
    np.testing.assert_allclose(found.x, [[1.0, 2.0], [1.1, 2.1], [5.0, 6.0]], rtol=1e-6)
    assert found.y == ["rose", "rose", "tulip"] and found.name == "flowers"
    assert "garden" in found.findings.passed_over[0] or heads is None


def test_a_column_of_labels_may_be_anywhere_and_of_integers(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", [["3", "0.5", "1"], ["4", "0.7", "2"]], ["kind", "a", "b"])
    assert data.load(str(file), data.ReadOptions(label_column="kind")).y == [3, 4]
    assert data.load(str(file)).y == [1, 2]
    with pytest.raises(Exception, match="but no missing"):
        data.load(str(file), data.ReadOptions(label_column="missing"))


def test_bad_rows_are_named_by_their_line_and_skipped_on_request(sharp: Sharp, tmp_path: Path) -> None:
    rows = [*ROWS, ["oops", "2", "north", "rose"], ["1", "", "north", "rose"], ["1", "2"], ["1", "2", "north", ""]]
    file = write_csv(tmp_path / "flowers.csv", rows, ["width", "height", "garden", "label"])
    done = sharp("learn", str(file))
    for said in ("line 5: width is 'oops', not a number", "line 6: height is empty", "line 7: has 2 columns",
                 "line 8: label is empty", "--skip-bad"):  # fmt: skip
        assert said in done.err
    assert done.code == 1 and "3 examples are durable" in sharp("learn", str(file), "--skip-bad").out


def test_parquet_files_of_columns_and_of_vectors_are_learned_and_predicted(sharp: Sharp, tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vectors = [[0.0, 1.0], [0.1, 0.9], [5.0, 5.0]]
    labels = ["low", "low", "high"]
    parquet.write_table(pyarrow.table({"embedding": vectors, "label": labels}), tmp_path / "vectors.parquet")
    columns = {"a": [row[0] for row in vectors], "b": [row[1] for row in vectors], "label": labels}
    parquet.write_table(pyarrow.table(columns), tmp_path / "columns.parquet")
    for name in ("vectors", "columns"):
        file = str(tmp_path / f"{name}.parquet")
        assert sharp("learn", file).code == 0
        answer = sharp("predict", file, "-l", name, "--json").json()
        assert [one["label"] for one in answer["predictions"]] == labels


def test_parquet_without_pyarrow_says_what_to_install(
    sharp: Sharp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    done = sharp("learn", str(tmp_path / "x.parquet"))
    assert done.code == 2 and "pip install 'sharp-serve[parquet]'" in " ".join(done.err.replace("│", " ").split())


# ---- predict --------------------------------------------------------------------------------------------------------


def test_one_bad_file_does_not_take_the_answers_of_the_others(sharp: Sharp, tmp_path: Path) -> None:
    folder = paint(tmp_path / "shades", sizes=(6,))
    sharp("learn", str(folder))
    spoil(folder)
    Image.new("RGB", (7, 7)).save(folder / "dark" / "other.png")  # which only the server refuses
    (folder / "light" / "table.csv").write_text("1,2\n")
    missing = str(tmp_path / "missing.png")
    words = ("predict", str(folder), missing, str(folder / "light" / "table.csv"))
    done = sharp(*words)
    assert done.code == 1 and done.out.count("dark") + done.out.count("light") >= 12
    for name in ("cut.png", "empty.jpg", "text.webp", "other.png", "missing.png", "table.csv"):
        assert f"{name}: " in done.err, name
    as_json = sharp(*words, "--json")
    assert len(as_json.json()["predictions"]) == 12 and len(as_json.json()["failures"]) == 6 and not as_json.err
    rows = list(csv.DictReader(io.StringIO(sharp(*words, "--csv", "--novelty").out)))
    assert len(rows) == 18 and sum(bool(row["error"]) for row in rows) == 6
    assert {row["label"] for row in rows if not row["error"]} == {"dark", "light"}
    assert all(0 <= float(row["novelty"]) <= 1 for row in rows if not row["error"])


def test_rows_of_tables_are_answered_by_their_place(sharp: Sharp, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "flowers.csv", ROWS, ["width", "height", "garden", "label"])
    sharp("learn", str(file))
    flawed = write_csv(tmp_path / "new.csv", [["1", "2"], ["x", "2"], ["5", "6"]], ["width", "height"])
    np.save(tmp_path / "x.npy", np.array([[1, 2], [np.nan, 2]], np.float32))
    answer = sharp("predict", str(flawed), str(tmp_path / "x.npy"), str(file), "--json").json()
    places = [Path(one["file"]).name for one in answer["predictions"]]
    assert places == ["new.csv, line 2", "new.csv, line 4", "x.npy[0]"] + [f"flowers.csv, line {i}" for i in (2, 3, 4)]
    assert [Path(item["place"]).name for item in answer["failures"]] == ["new.csv, line 3", "x.npy[1]"]


def test_without_a_name_the_only_learner_is_asked_and_of_several_one_must_be_named(
    sharp: Sharp, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    nobody = sharp("predict", str(tmp_path / "x.npy"))
    assert nobody.code == 1 and "there is no learner yet" in nobody.err
    sharp("learn", "iris")
    assert sharp("predict", str(tmp_path / "x.npy"), "--json").json()["learner"] == "iris"
    assert sharp("evaluate", "iris", "--json").json()["learner"] == "iris"
    sharp("learner", "create", "other")
    several = sharp("predict", str(tmp_path / "x.npy"))
    assert several.code == 1 and "iris, other" in several.err and "--learner" in several.err
