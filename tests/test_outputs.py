"""Files appear once they are complete, and replace existing ones only on request."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nearmt.errors import OutputError, OutputExistsError
from nearmt.outputs import check_output, check_output_folder, claim_folder, is_stream, writing, writing_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, content: bytes, *, overwrite: bool = False) -> None:
    with writing(path, overwrite=overwrite) as out:
        out.write(content)


def test_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with writing(path, overwrite=False) as out:
        out.write(b"half")
        out.flush()
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_after_an_error_nothing_has_changed(tmp_path, overwrite):
    path = tmp_path / "a.txt"
    if overwrite:
        path.write_text("old")

    def fail(kind: Any, content: Any) -> None:
        with kind(path, overwrite=overwrite) as out:
            out.write(content)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail(writing, b"new")
    assert names(tmp_path) == (["a.txt"] if overwrite else [])
    with pytest.raises(KeyboardInterrupt):
        fail(writing_text, "new")
    assert not overwrite or path.read_text() == "old"
    assert names(tmp_path) == (["a.txt"] if overwrite else [])


def test_existing_file_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OutputExistsError, match=r"a\.txt exists$"):
        check_output(path, overwrite=False)
    with pytest.raises(OutputExistsError):
        write(path, b"new")
    assert path.read_text() == "old"
    check_output(path, overwrite=True)
    write(path, b"new", overwrite=True)
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("has_links", [True, False])
def test_file_that_appears_in_the_meantime_is_kept(tmp_path, monkeypatch, has_links):
    if not has_links:

        def link(*args: object) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "link", link)
    path = tmp_path / "a.txt"

    def write_late() -> None:
        with writing(path, overwrite=False) as out:
            out.write(b"mine")
            path.write_text("another's")

    check_output(path, overwrite=False)
    with pytest.raises(OutputExistsError):
        write_late()
    assert path.read_text() == "another's"
    assert names(tmp_path) == ["a.txt"]
    write(tmp_path / "b.txt", b"new")
    assert (tmp_path / "b.txt").read_bytes() == b"new"


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "a.txt"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    together = threading.Barrier(len(contents))

    def work(content: bytes) -> None:
        with writing(path, overwrite=True) as out:
            out.write(content[:50_000])
            out.flush()
            together.wait()
            out.write(content[50_000:])

    threads = [threading.Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["a.txt"]


def test_permissions_are_kept_or_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        new, private = tmp_path / "new", tmp_path / "private"
        write(new, b"x")
        assert stat.S_IMODE(new.stat().st_mode) == 0o640
        private.write_text("secret")
        private.chmod(0o600)
        with writing(private, overwrite=True):
            assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob(".private*")} == {0o600}
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_symbolic_link_stays_a_link(tmp_path):
    target, link = tmp_path / "far" / "a.txt", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(OutputExistsError):
        check_output(link, overwrite=False)
    write(link, b"new", overwrite=True)
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_longest_possible_name_can_be_written(tmp_path):
    path = tmp_path / ("ä" * 127)  # 254 bytes of the 255 that are possible
    write(path, b"x")
    assert path.read_bytes() == b"x"


def test_unwritable_paths_are_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for path, why in (
        (tmp_path, "is a folder, not a file"),
        (tmp_path / "none" / "a", "none is not a folder: a cannot be written there"),
        (tmp_path / "file" / "a", "is not a folder"),
    ):
        for overwrite in (False, True):
            with pytest.raises(OutputError, match=why):
                check_output(path, overwrite=overwrite)
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(OutputError, match="no permission"):
        check_output(tmp_path / "a", overwrite=False)


def test_pipes_and_devices_are_written_to_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null"), Path("/dev/stdout"), Path("/dev/fd/1"), Path("/proc/self/fd/1")):
        assert is_stream(path)
        check_output(path, overwrite=False)
    assert not is_stream(tmp_path)
    assert not is_stream(tmp_path / "none")
    write(Path("/dev/null"), b"x")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    with writing_text(pipe, overwrite=False) as out:
        out.write("grün\n")
    reader.join()
    assert found == ["grün\n".encode()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_may_be_a_file(tmp_path):
    script = (
        "from pathlib import Path\nfrom nearmt.outputs import check_output, writing\n"
        "check_output(Path('/dev/stdout'), overwrite=False)\n"
        "with writing(Path('/dev/stdout'), overwrite=False) as out: out.write(b'more')"
    )
    path = tmp_path / "out"
    path.write_text("some ")
    with path.open("ab") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True)
    assert path.read_text() == "some more"
    assert Path("/dev/stdout").is_symlink()


def test_folder_with_files_is_refused_unless_overwriting(tmp_path):
    check_output_folder(tmp_path, overwrite=False)
    check_output_folder(tmp_path / "new", overwrite=False)
    (tmp_path / "a").write_text("x")
    with pytest.raises(OutputExistsError, match="has files in it"):
        check_output_folder(tmp_path, overwrite=False)
    check_output_folder(tmp_path, overwrite=True)
    with pytest.raises(OutputError, match="is a file, not a folder"):
        check_output_folder(tmp_path / "a", overwrite=True)


def test_folder_is_claimed_by_one_command(tmp_path):
    def claim(name: str, command: str = "demo") -> None:
        claim_folder(tmp_path / name, command)

    claim("new/folder")
    claim("new/folder")
    with pytest.raises(OutputError, match="not from nearmt bench: choose a new folder"):
        claim("new/folder", "bench")
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    claim("empty")
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "deep" / "thesis.txt").write_text("x")
    with pytest.raises(OutputError, match="files in it that are not from nearmt demo"):
        claim("mine")
    assert names(tmp_path / "mine") == ["deep"]
    with pytest.raises(OutputError, match="is a file, not a folder"):
        claim("mine/deep/thesis.txt")
    with pytest.raises(OutputError, match="cannot be written to"):
        claim("mine/deep/thesis.txt/below")
