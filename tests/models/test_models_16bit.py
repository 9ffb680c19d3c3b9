"""16-bit weights on a CPU: tested in a child process, with float32 if the processor does not support them.

A 16-bit product may end the process it is made in, so none is made here: what really computes is a child.
"""

import logging
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianMTModel

import tiny_models
from children import result_of
from nearmt.errors import SettingError
from nearmt.models import Seq2Seq, int8, processor
from nearmt.models.reference import load_for_generate
from nearmt.store import Store, build
from nearmt.translator import Translator

REASON = "a test was ended by SIGILL"


def compare(folder: Path, dtype: str, known: dict[torch.dtype, str | None]) -> dict[str, Any]:
    """The difference between the states of a model in a type and in float32."""
    processor._known.update(known)
    model, exact = Seq2Seq.load(folder, dtype=dtype), Seq2Seq.load(folder)
    sources, targets = model.tokenize_sources(["der Hund"]), model.tokenize_targets(["a dog"])
    found, expected = (one.force_decode(sources, targets).states for one in (model, exact))
    difference = float(((found - expected).abs() - 0.1 * expected.abs()).max())
    return {"dtype": model.dtype, "engine": model.engine, "states": str(found.dtype), "difference": difference}


def translate_in_bfloat16(model: Path, store: Path, known: dict[torch.dtype, str | None]) -> str:
    processor._known.update(known)
    loaded = Seq2Seq.load(model, dtype="bfloat16")
    return Translator(store, model=loaded).translate(["die neue tabelle zeigt die zelle ."])[0].text


def tried() -> dict[torch.dtype, str | None]:
    """The types this processor supports, so that child processes need not test them again."""
    return {dtype: processor.why_not(dtype) for dtype in processor.SIXTEEN_BITS}


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_marian(tmp_path_factory.mktemp("marian"))


@pytest.fixture(scope="module")
def stored_in_bfloat16(marian: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_models.make_marian(tmp_path_factory.mktemp("bfloat16"))
    MarianMTModel.from_pretrained(marian, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what is known about this processor."""
    monkeypatch.setattr(processor, "_known", {})


@pytest.fixture
def unable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that supports neither of the two types."""
    monkeypatch.setattr(processor, "_known", dict.fromkeys(processor.SIXTEEN_BITS, REASON))


def in_a_child(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits_give_float32_states(marian: Path, dtype: str) -> None:
    found = result_of(compare, marian, dtype, tried())
    can = processor.why_not(getattr(torch, dtype)) is None
    assert (found["dtype"], found["engine"]) == (dtype if can else "float32", "torch")
    assert found["states"] == "torch.float32"
    assert found["difference"] < 0.2


def test_auto_is_the_type_of_the_stored_weights(stored_in_bfloat16: Path, marian: Path) -> None:
    assert Seq2Seq.load(marian, dtype="auto").dtype == "float32"
    found = result_of(compare, stored_in_bfloat16, "auto", tried())
    assert found["dtype"] == ("bfloat16" if processor.why_not(torch.bfloat16) is None else "float32")
    assert found["difference"] < 0.2


@pytest.mark.usefixtures("unable")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_unsupported_type_falls_back_to_float32_with_one_warning(
    marian: Path, dtype: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "nearmt"):
        model = Seq2Seq.load(marian, dtype=dtype)
    assert [record.getMessage() for record in caplog.records] == [
        f"{marian} runs in float32, because this processor cannot compute in {dtype}: {REASON}"
    ]
    assert model.dtype == "float32"
    sources, targets = model.tokenize_sources(["der Hund"]), model.tokenize_targets(["a dog"])
    exact = Seq2Seq.load(marian)
    # The stored weights, not the ones rounded to 16 bits.
    assert torch.equal(model.force_decode(sources, targets).states, exact.force_decode(sources, targets).states)


@pytest.mark.usefixtures("unable")
def test_weights_stored_in_bfloat16_fall_back_too(stored_in_bfloat16: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nearmt"):
        assert Seq2Seq.load(stored_in_bfloat16, dtype="auto").dtype == "float32"
    assert len(caplog.records) == 1


def test_float32_is_not_tested(marian: Path, stored_in_bfloat16: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dtype: torch.dtype) -> None:
        raise AssertionError("tried")

    monkeypatch.setattr(processor, "_known", {})
    monkeypatch.setattr(processor, "_test", refuse)
    assert Seq2Seq.load(stored_in_bfloat16).dtype == "float32"
    assert Seq2Seq.load(marian, dtype="auto").dtype == "float32"
    assert load_for_generate(stored_in_bfloat16).dtype == torch.float32


@pytest.mark.usefixtures("unable")
def test_fallback_uses_the_engine_of_other_machines(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "_MIN_WIDTH", 32)
    assert Seq2Seq.load(marian).engine == "int8"
    assert Seq2Seq.load(marian, dtype="bfloat16").engine == "torch"
    with pytest.raises(SettingError, match="the int8 engine needs `device` cpu and `dtype` float32"):
        Seq2Seq.load(marian, dtype="bfloat16", engine="int8")


@pytest.mark.usefixtures("unable")
def test_store_built_with_the_fallback_opens_without_it(client, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(int8, "_MIN_WIDTH", 32)  # as if the model had a normal size
    model = Seq2Seq.load(client.model, dtype="bfloat16")
    store = build(client.memory, model=model, out=tmp_path / "s.store", train=False)
    assert store.manifest.model["engine"] == "torch"
    assert "dtype" not in store.manifest.model
    assert Translator(store.folder, method="base").model.engine == "torch"


def test_store_built_in_float32_is_read_in_bfloat16(client) -> None:
    assert Store(client.store).manifest.model["engine"] == "torch"
    assert "spreadsheet" in result_of(translate_in_bfloat16, client.model, client.store, tried())


@pytest.mark.usefixtures("untried")
def test_processor_is_tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        made.append(command)
        return subprocess.CompletedProcess(command, 0, processor._SUCCESS.encode() + b"\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert [processor.why_not(torch.bfloat16) for _ in range(3)] == [None] * 3
    assert len(made) == 1
    assert processor.why_not(torch.float16) is None
    assert [command[4] for command in made] == ["bfloat16", "float16"]


ILL = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        (ILL, "ended by SIGILL"),
        (f"import os, signal; os.kill(os.getpid(), {signal.SIGRTMIN + 3})", "ended by signal"),
        ("raise SystemExit(3)", "a test failed"),
        ("import nothing_of_this_name", "a test failed"),
        ("print('something else')", "a test failed"),
        ("import time; time.sleep(60)", "longer than 2 seconds"),
    ],
)
def test_failed_processor_test_means_unsupported(trial: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_SCRIPT", trial)
    monkeypatch.setattr(processor, "_TIMEOUT_SECONDS", 2.0)
    assert reason in (processor.why_not(torch.bfloat16) or "")


@pytest.mark.usefixtures("untried")
def test_without_an_interpreter_the_type_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for executable in ("", None, str(tmp_path / "none")):
        processor._known.clear()
        monkeypatch.setattr(sys, "executable", executable)
        assert processor.why_not(torch.bfloat16)
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nkill -ILL $$\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    processor._known.clear()
    monkeypatch.setattr(sys, "executable", str(fake))
    assert processor.why_not(torch.bfloat16) == REASON
    processor._known.clear()
    monkeypatch.setattr(sys, "frozen", True, raising=False)  # sys.executable is then the program itself
    assert "no Python interpreter" in (processor.why_not(torch.bfloat16) or "")


def test_program_survives_a_crash_of_the_processor_test(marian: Path, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom nearmt.models import Seq2Seq, processor\nprocessor._SCRIPT = sys.argv[2]\n"
        "print(Seq2Seq.load(sys.argv[1], dtype='bfloat16').dtype)"
    )
    done = in_a_child(script, marian, ILL)
    assert done.stdout == "float32\n"
    assert done.stderr == f"{marian} runs in float32, because this processor cannot compute in bfloat16: {REASON}\n"


def test_processor_test_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(1)")  # must not be imported
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processor, "_known", {})
    found = processor.why_not(torch.bfloat16)
    assert found is None or "SIG" in found
    assert os.listdir(tmp_path) == ["torch.py"]  # noqa: PTH208
