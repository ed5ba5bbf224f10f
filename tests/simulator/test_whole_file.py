"""Files are there whole or not at all, and a disk that takes nothing is one sentence."""

import errno
import os

import pytest

from simulator.errors import CannotWrite, HetsimError
from simulator.support.atomic_io import replacing


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("where", ["writing", "replacing", "folder"])
def test_a_disk_that_takes_nothing(tmp_path, monkeypatch, code, where):
    path = tmp_path / "file.json"
    path.write_text("before")
    refusal = OSError(code, os.strerror(code))

    def refuse(*_, **__):
        raise refusal

    if where == "replacing":
        monkeypatch.setattr(os, "replace", refuse)
    elif where == "folder":
        monkeypatch.setattr("pathlib.Path.mkdir", refuse)

    def write():
        with replacing(path) as temporary:
            temporary.write_text("half of it")
            if where == "writing":
                raise refusal

    with pytest.raises(CannotWrite) as error:
        write()
    assert isinstance(error.value, HetsimError)
    assert str(error.value).startswith(
        f"Cannot write {path}: {os.strerror(code)}; what was finished"
    )
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file.json"]
