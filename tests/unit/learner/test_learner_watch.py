"""What a run leaves and shows besides its result: episodes for diagnosis, TensorBoard's file, the live table."""

from __future__ import annotations

import io
import json
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from learner_kit import small_recipe  # noqa: E402
from rich.console import Console  # noqa: E402

from toolverse.cli.live import LiveView, sparkline  # noqa: E402
from toolverse.cli.train import metrics_log  # noqa: E402
from toolverse.errors import InvalidInputError, MissingDependencyError  # noqa: E402
from toolverse.learner.tensorboard import EventFile, crc32c  # noqa: E402
from toolverse.learner.train import resume_run, train_recipe  # noqa: E402
from toolverse.rollout.diagnosis import diagnose  # noqa: E402
from toolverse.rollout.files import read_trajectories  # noqa: E402
from toolverse.rollout.page import write_page  # noqa: E402
from toolverse.rollout.runs import read_run  # noqa: E402


def test_a_run_can_be_diagnosed_and_viewed_also_after_a_resume(tmp_path: Path) -> None:
    seen = []
    recipe = small_recipe(held_out_episodes=2, record_episodes=4, checkpoint_every=2, updates=3)
    train_recipe(recipe, tmp_path, stop_after=2, watchers=[seen.append])
    # A kill after update 3 was played, before its checkpoint: its episodes are played again, and stand in the file once.
    lines = (tmp_path / "trajectories.jsonl").read_text().splitlines()
    later = json.dumps({**json.loads(lines[-1]), "policy_version": "3"})
    (tmp_path / "trajectories.jsonl").write_text("\n".join([*lines, later, later[:50]]))
    resume_run(tmp_path, watchers=[seen.append])
    assert [line["update"] for line in seen] == [1, 2, 3]
    run = read_run(tmp_path)
    assert [episode.step for episode in run.episodes] == ["1"] * 4 + ["2"] * 4 + ["3"] * 4
    assert len(run.evaluation) == 4
    assert len(run.metrics) == 3
    assert not {finding.cause for finding in diagnose(run) if finding.rank == "broken"}
    assert all(t.advantage is not None for x in read_trajectories(tmp_path) for t in x.turns)
    places = {row["trajectory"] for row in run.samples}
    assert places == set(range(12))
    assert write_page(list(read_trajectories(tmp_path)), tmp_path / "index.html", title="run").is_file()


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_an_event_file_holds_framed_scalars(tmp_path: Path) -> None:
    with EventFile(tmp_path) as events:
        events({"update": 300, "success": 0.25, "alarms": ["x"], "nothing": None})
    data = events.path.read_bytes()
    records = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        records.append(data[12 : 12 + length])
        data = data[16 + length :]
    assert b"brain.Event:2" in records[0]
    # step 300 as a varint, then a summary of one value: tag "success", float 0.25.
    value = b"\x0a\x07success" + b"\x15" + struct.pack("<f", 0.25)
    assert records[1].endswith(
        b"\x10\xac\x02" + b"\x2a" + bytes([len(value) + 2]) + b"\x0a" + bytes([len(value)]) + value
    )


def test_trackio_is_told_each_update_and_needed_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingDependencyError, match="trackio"), metrics_log("trackio", tmp_path):
        pass
    told: list[Any] = []
    stub = SimpleNamespace(
        init=lambda **settings: told.append(settings),
        log=lambda metrics, step: told.append((step, metrics)),
        finish=lambda: told.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "trackio", stub)
    with metrics_log("trackio", tmp_path / "run") as (watch,):
        watch({"update": 3, "success": 0.25, "alarms": ["x"], "nothing": None})
    assert told == [
        {"project": "toolverse", "name": "run", "resume": "allow"},
        (3, {"update": 3, "success": 0.25}),
        "finished",
    ]
    with pytest.raises(InvalidInputError, match="tensorboard or trackio"), metrics_log("other", tmp_path):
        pass


def test_the_live_table_shows_the_last_update_and_its_alarms() -> None:
    view = LiveView()
    for update in (1, 2):
        view.lines.append({"update": update, "success": update / 4, "held_out": None, "alarms": ["too long"]})
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view.table())
    text = console.export_text()
    assert "update 2" in text
    assert "50%" in text
    assert "too long" in text
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
