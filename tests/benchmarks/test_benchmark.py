"""`benchmark`: parts of a set, trials on the validation part alone, a record that goes on where it stopped."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import pairsym_dask as ps
from pairsym_dask.baselines import IALS, Popularity
from pairsym_dask.benchmarks import contenders, parts
from pairsym_dask.benchmarks.benchmark import _Runner
from pairsym_dask.benchmarks.contenders import CONTENDERS, Contender
from pairsym_dask.benchmarks.parts import Parts, PublicSet, digest_of, read_pairs
from pairsym_dask.cli import pairsym

FEW = ["popularity", "item-knn"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Two kinds of users, pairs in three parts."""
    rng = np.random.default_rng(0)
    like = np.where(np.arange(80)[:, None] % 2 == np.arange(30) % 2, 0.5, 0.05)
    user, item = np.nonzero(rng.random(like.shape) < like)
    part = rng.choice(["train", "valid", "test"], user.size, p=[0.7, 0.1, 0.2])
    return pd.DataFrame({"user": user + 100, "item": item + 7, "part": part})


@pytest.fixture
def file(frame: pd.DataFrame, tmp_path: Path) -> Path:
    frame.to_parquet(tmp_path / "plays.parquet")
    return tmp_path / "plays.parquet"


def write_texts(frame: pd.DataFrame, folder: Path) -> None:
    for name, inside in (("train.txt", ["train", "valid"]), ("test.txt", ["test"])):
        rows = frame[frame["part"].isin(inside)].groupby("user")["item"]
        (folder / name).write_text("".join(f"{user} {' '.join(map(str, items))}\n" for user, items in rows) + "\n")


def test_figures_are_those_of_the_protocol(file, frame, tmp_path):
    """Chosen on valid after a fit to train; reported on test after a fit to train + valid; all written out here."""
    result = ps.benchmark(file, tmp_path / "record.json", contenders=FEW, trials=3, random_state=2)
    matrices = {
        name: frame[frame["part"].isin(inside)]
        for name, inside in (
            ("train", ["train"]),
            ("both", ["train", "valid"]),
            ("valid", ["valid"]),
            ("test", ["test"]),
        )
    }
    stores = {
        name: ps.ingest(matrices[name][["user", "item"]], tmp_path / f"{name}.zarr") for name in ("train", "both")
    }
    found = result.record["contenders"]["item-knn"]
    assert len(found["trials"]) == 3
    for trial in found["trials"]:
        overall = ps.evaluate(
            contenders.baselines.ItemKNN(**trial["settings"]).fit(stores["train"]), matrices["valid"], n=20
        ).overall
        assert trial["ndcg"] == pytest.approx(overall["ndcg"])
        assert trial["log_likelihood"] is None
    best = max(found["trials"], key=lambda one: one["ndcg"])
    assert found["chosen"] == best
    model = contenders.baselines.ItemKNN(**best["settings"]).fit(stores["both"])
    overall = ps.evaluate(model, matrices["test"], n=20).overall
    for name in ("recall", "ndcg", "R"):
        assert found["test"][name] == pytest.approx(overall[name])
    popularity = result.record["contenders"]["popularity"]
    assert len(popularity["trials"]) == 1  # it has nothing to choose
    assert popularity["test"]["log_likelihood"] < 0
    assert result.table["contender"].tolist() == ["item-knn", "popularity"]
    for words in ("recall@20", "NDCG@20", "item-knn", "80 users x 30 items"):
        assert words in str(result)
    assert "<table" in result._repr_html_()


def test_this_model_is_ranked_by_the_best_exponent_of_each_fit(file, frame, tmp_path, monkeypatch):
    """An exponent takes no other fit: it is chosen on valid with the trial, and kept for test."""
    few = Contender(ps.PairedSymbols, {"discount": (0.0, 0.5)}, {"factors": 3, "sweeps": 2}, (0.0, 0.5, 1.0))
    monkeypatch.setitem(CONTENDERS, "paired-symbols-64", few)
    result = ps.benchmark(file, tmp_path / "record.json", contenders=["paired-symbols-64"], trials=2)
    found = result.record["contenders"]["paired-symbols-64"]
    inside = {"train": ["train"], "both": ["train", "valid"], "valid": ["valid"], "test": ["test"]}
    pairs = {name: frame.loc[frame["part"].isin(parts), ["user", "item"]] for name, parts in inside.items()}
    stores = {name: ps.ingest(pairs[name], tmp_path / f"{name}.zarr") for name in ("train", "both")}

    def judged(settings, fitted, part, exponent):
        path = tmp_path / f"{fitted}-{settings['discount']}.zarr"
        model = ps.PairedSymbols(factors=3, **settings).fit(stores[fitted], path, sweeps=2, progress=False)
        return ps.evaluate(model, pairs[part], exponent, n=20).overall["ndcg"]

    for trial in found["trials"]:
        scores = {g: judged(trial["settings"], "train", "valid", g) for g in few.popularities}
        assert trial["popularity"] == max(scores, key=lambda g: scores[g])
        assert trial["ndcg"] == pytest.approx(max(scores.values()))
    best = found["chosen"]
    assert found["test"]["ndcg"] == pytest.approx(judged(best["settings"], "both", "test", best["popularity"]))


def test_a_record_of_the_first_version_goes_on(file, tmp_path):
    """There the exponent stood among the settings."""
    output = tmp_path / "record.json"
    record = ps.benchmark(file, output, contenders=["popularity"], trials=1).record
    trial = {**record["contenders"]["popularity"]["trials"][0]}
    trial["settings"] = {"tau": 1.0, "popularity": 0.2}
    del trial["popularity"]
    ours = {"trials": [trial], "chosen": trial, "test": record["contenders"]["popularity"]["test"]}
    output.write_text(json.dumps({**record, "version": 1, "contenders": {"paired-symbols-64": ours}}))
    found = ps.benchmark(file, output, contenders=["popularity"], trials=1).record
    assert found["version"] == 2
    (there,) = found["contenders"]["paired-symbols-64"]["trials"]
    assert (there["settings"], there["popularity"]) == ({"tau": 1.0}, 0.2)
    assert found["contenders"]["paired-symbols-64"]["chosen"] == there


def test_finished_trials_are_not_run_again(file, tmp_path, monkeypatch):
    record = tmp_path / "record.json"
    judged = []
    judge = _Runner._judge

    def counting(self, contender, settings, popularities, fitted, held, users):
        judged.append((held, contender.system.__name__))
        if len(judged) == 3 and stop:
            raise KeyboardInterrupt
        return judge(self, contender, settings, popularities, fitted, held, users)

    monkeypatch.setattr(_Runner, "_judge", counting)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        ps.benchmark(file, record, contenders=["item-knn"], trials=3)
    assert len(json.loads(record.read_text())["contenders"]["item-knn"]["trials"]) == 2
    stop, judged[:] = False, []
    first = ps.benchmark(file, record, contenders=["item-knn"], trials=3)
    assert [held for held, _ in judged] == ["valid", "test"]
    judged.clear()
    again = ps.benchmark(file, record, contenders=FEW, trials=3)  # another contender joins
    assert judged == [("valid", "Popularity"), ("test", "Popularity")]
    assert again.record["contenders"]["item-knn"] == first.record["contenders"]["item-knn"]
    judged.clear()
    ps.benchmark(file, record, contenders=["item-knn"], trials=4)  # one trial more
    assert judged[0][0] == "valid"
    assert len(judged) <= 2
    with pytest.raises(ps.InputError, match="another benchmark: its random_state is 0, not 5"):
        ps.benchmark(file, record, contenders=FEW, random_state=5)
    record.write_text("[]")
    with pytest.raises(ps.InputError, match="is in the way"):
        ps.benchmark(file, record, contenders=FEW)


def test_later_trials_are_neighbours_of_the_best(file, tmp_path):
    record = ps.benchmark(file, tmp_path / "record.json", contenders=["item-knn"], trials=6).record
    trials = record["contenders"]["item-knn"]["trials"]
    assert [one["settings"] for one in trials[:3]] == CONTENDERS["item-knn"].trials(6, 0)[:3]
    for k in range(3, 6):
        best = max(trials[:k], key=lambda one: one["ndcg"])["settings"]
        assert trials[k]["settings"] in CONTENDERS["item-knn"].neighbours(best)
    assert len({json.dumps(one["settings"]) for one in trials}) == 6


def test_neighbours_are_one_step_away():
    contender = Contender(Popularity, {"a": (1, 2, 3), "b": (0.1, 0.2)})
    assert contender.neighbours({"a": 2, "b": 0.1}) == [{"a": 1, "b": 0.1}, {"a": 3, "b": 0.1}, {"a": 2, "b": 0.2}]
    assert contender.neighbours({"a": 9, "b": 0.1}) == []
    assert contender.neighbours({"b": 0.1}) == []


def test_trials_are_drawn_without_repeats_and_the_first_ones_stay():
    few = CONTENDERS["ials-64"].trials(5, 1)
    assert CONTENDERS["ials-64"].trials(9, 1)[:5] == few
    assert few != CONTENDERS["ials-64"].trials(5, 2)[:5]
    space = {"a": (1, 2), "b": ("x", "y", "z")}
    drawn = Contender(Popularity, space).trials(100, 0)
    assert sorted((one["a"], one["b"]) for one in drawn) == [(a, b) for a in (1, 2) for b in "xyz"]
    assert Contender(Popularity).trials(8, 0) == [{}]


@pytest.mark.parametrize("name", [name for name in CONTENDERS if not name.startswith("implicit")])
def test_every_contender_can_run_with_any_of_its_settings(name, frame, tmp_path):
    contender = CONTENDERS[name]
    small = {"factors": 3, "iterations": 1, "sweeps": 1}
    counts = ps.ingest(frame[["user", "item"]], tmp_path / "c.zarr")
    for k, settings in enumerate(contender.trials(3, 0)):
        settings = {key: small.get(key, value) for key, value in settings.items()}
        fixed = {key: small.get(key, value) for key, value in contender.fixed.items()}
        model = Contender(contender.system, contender.space, fixed).fit(
            settings, counts, str(tmp_path / f"{k}.zarr"), 1
        )
        assert np.isfinite(model.scores(counts.user_ids[:2])).all()


def test_public_set_is_known_by_its_pairs_whatever_the_format(frame, tmp_path, monkeypatch):
    monkeypatch.setitem(parts.SETS, "gowalla", PublicSet("", digest_of(frame)))
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "pairs.csv", index=False)
    frame.to_csv(tmp_path / "pairs.tsv.gz", index=False, sep="\t")
    frame.to_parquet(tmp_path / "pairs.parquet")
    write_texts(frame, tmp_path)
    matrices = [
        Parts.read("gowalla", tmp_path / name).matrices for name in ("pairs.csv", "pairs.tsv.gz", "pairs.parquet")
    ]
    for part in parts.PARTS:
        for other in matrices[1:]:
            assert (matrices[0][part] != other[part]).nnz == 0
    texts = Parts.read("gowalla", tmp_path).matrices
    assert (texts["test"] != matrices[0]["test"]).nnz == 0
    assert (texts["train"] + texts["valid"] != matrices[0]["train"] + matrices[0]["valid"]).nnz == 0
    degree = (texts["train"] + texts["valid"]).sum(1).A1
    np.testing.assert_array_equal(texts["valid"].sum(1).A1, degree // 9)
    changed = frame.copy()
    changed.loc[0, "item"] = 999
    changed.to_parquet(tmp_path / "changed.parquet")
    with pytest.raises(ps.InputError, match="is not the public split of gowalla: the checksum"):
        Parts.read("gowalla", tmp_path / "changed.parquet")
    assert Parts.read(str(tmp_path / "changed.parquet")).name == "changed"


def test_public_set_can_be_downloaded(frame, tmp_path, monkeypatch):
    write_texts(frame, tmp_path)
    monkeypatch.setitem(parts.SETS, "gowalla", PublicSet("", digest_of(frame)))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            assert digest_of(read_pairs(address)) == digest_of(frame)
            result = ps.benchmark("gowalla", tmp_path / "r.json", source=f"{address}/", contenders=["popularity"])
            assert result.record["set"] == "gowalla"
            (tmp_path / "test.txt").write_text("100 8\n")
            with pytest.raises(ps.InputError, match="is not the public split"):
                Parts.read("gowalla", address)
            (tmp_path / "test.txt").unlink()
            with pytest.raises(ps.InputError, match=r"test\.txt cannot be downloaded: HTTP Error 404"):
                read_pairs(address)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_gowallas_public_split_is_the_one_we_know(real_data):
    assert Parts.read("gowalla", real_data / "gowalla-public.parquet").matrices["test"].nnz == 217_242


def test_bad_input_is_one_clear_sentence(frame, file, tmp_path):
    record = tmp_path / "record.json"
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "train.txt").write_text("1 2 3\n1 two\n")
    (tmp_path / "test.txt").write_text("1 4\n")
    for name, table in (
        ("columns", frame.rename(columns={"part": "split"})),
        ("parts", frame.replace({"part": {"valid": "dev"}})),
        ("testless", frame[frame["part"] != "test"]),
        ("empty", frame.astype({"item": "float"}).mask(frame["item"] == 8)),
    ):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    for name, arguments, message in (
        ("gowalla", {}, "not part of this package: say with source="),
        ("nowhere.parquet", {}, "no file nowhere.parquet; a benchmark is a public set"),
        (tmp_path / "notes.txt", {}, "come as .parquet, .csv or .tsv"),
        (tmp_path / "columns.csv", {}, "lacks the column part"),
        (tmp_path / "parts.csv", {}, "a part 'dev'; parts are train, valid, test"),
        (tmp_path / "testless.csv", {}, "no pair of the part 'test'"),
        (tmp_path / "empty.csv", {}, "an empty cell in row"),
        (tmp_path, {}, "line 2 of train.txt is not a user and items"),
        (file, {"contenders": ["lightgcn"]}, "no contender 'lightgcn'; there are popularity"),
        (file, {"trials": 0}, "trials must be"),
        (file, {"users": 0}, "users must be"),
        (file, {"metric": "auc"}, "metric must be"),
    ):
        with pytest.raises(ps.InputError, match=message):
            ps.benchmark(name, record, **arguments)
    assert not record.exists()


def test_command_tunes_and_reports(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["benchmark", str(file), "--contender", "popularity", "--contender", "item-knn", "--trials", "2"]
    done = CliRunner().invoke(pairsym, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert "NDCG@20" in done.output
    assert len(json.loads((tmp_path / "benchmark-plays.json").read_text())["contenders"]["item-knn"]["trials"]) == 2
    assert [path.name for path in tmp_path.glob("pairsym-benchmark-*")] == []


def test_threads_are_given_only_where_they_do_not_change_the_result(frame, tmp_path):
    counts = ps.ingest(frame[["user", "item"]], tmp_path / "c.zarr")
    model = Contender(IALS, {}, {"factors": 2, "iterations": 1}).fit({}, counts, "", 3)
    assert model.threads == 3
    model = Contender(contenders.baselines.BPR, {}, {"factors": 2, "epochs": 1}).fit({}, counts, "", 3)
    assert model.threads == 1


def test_a_late_validation_part_is_the_end_of_every_training_list(tmp_path):
    """`workflows/late_valid.py`: the last ninth, rounded down; the random validation part joins, test stays."""
    rng = np.random.default_rng(0)
    item = np.concatenate([rng.permutation(60)[:size] for size in (30, 8, 20)])
    frame = pd.DataFrame({"user": np.repeat([0, 1, 2], [30, 8, 20]), "item": item})
    frame["part"] = np.where(frame.index % 10 == 3, "valid", np.where(frame.index % 10 == 7, "test", "train"))
    frame.to_parquet(tmp_path / "parts.parquet")
    script = Path(__file__).parents[2] / "workflows" / "late_valid.py"
    words = [sys.executable, str(script), str(tmp_path / "parts.parquet"), str(tmp_path / "late.parquet")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "likeness of neighbours" in done.stdout
    late = pd.read_parquet(tmp_path / "late.parquet")
    pd.testing.assert_frame_equal(late[["user", "item"]], frame[["user", "item"]])
    assert ((late["part"] == "test") == (frame["part"] == "test")).all()
    for user, theirs in frame[frame["part"] == "train"].groupby("user"):
        last = theirs.index[len(theirs) - len(theirs) // 9 :]
        valid = late.index[(late["user"] == user) & (late["part"] == "valid")]
        assert list(valid) == list(last)
