import gzip
import os

import pytest

from scenarios.graph_cache import GraphCache, cache_folder, content_key


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("HETSIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "hetsim" / "graphs"
    monkeypatch.setenv("HETSIM_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("HETSIM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "hetsim" / "graphs"


def test_keys_follow_the_content(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("a = 1")
    key = content_key({"a": 1, "b": [2]}, [file])
    assert key == content_key({"b": [2], "a": 1}, [file])
    assert key != content_key({"a": 1, "b": [3]}, [file])
    file.write_text("a = 2")
    assert key != content_key({"a": 1, "b": [2]}, [file])


def test_storing_and_loading(tmp_path):
    cache = GraphCache(tmp_path / "deep" / "folder")
    assert cache.load("key") is None
    cache.store("key", {"a": [1, 2]})
    assert cache.load("key") == {"a": [1, 2]}
    assert os.listdir(cache.folder) == ["key.json.gz"]


@pytest.mark.parametrize(
    "damage", [b"", b"nonsense", gzip.compress(b"{", mtime=0), gzip.compress(b"\xff", mtime=0)]
)
def test_a_damaged_entry_is_as_good_as_none(tmp_path, damage):
    cache = GraphCache(tmp_path)
    cache.store("key", {"a": 1})
    cache.path("key").write_bytes(damage)
    assert cache.load("key") is None
    cache.store("key", {"a": 2})
    assert cache.load("key") == {"a": 2}


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = GraphCache(blocked)
    cache.store("key", {"a": 1})
    assert "Cannot keep a graph" in caplog.text
    assert cache.load("key") is None
