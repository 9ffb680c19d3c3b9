"""`nearmt build`: a store from a translation memory."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.info_output import print_info, say_doubts, warn_low_recall
from nearmt.cli.options import (
    Device,
    Dtype,
    Format,
    IndexFactory,
    IndexMemory,
    MaxK,
    MemoryFiles,
    MilvusUri,
    Offline,
    Probes,
    RayOptions,
    Rerank,
    Revision,
    RunOptions,
    index_option,
    input_option,
    model_option,
    output_option,
    training_option,
)
from nearmt.cli.output import print_json, reporting, say
from nearmt.cli.values import bytes_of
from nearmt.errors import SettingError

if TYPE_CHECKING:
    from nearmt.building.builder import BuildSettings
    from nearmt.models import Seq2Seq


@dataclass(frozen=True)
class _InputOptions:
    format: Format = None
    source_lang: Annotated[
        str | None, input_option("--source", help="Source language, if the model does not define it.")
    ] = None
    target_lang: Annotated[
        str | None, input_option("--target", help="Target language, if the model does not define it.")
    ] = None
    keep_identical: Annotated[
        bool, input_option("--keep-identical", help="Keep pairs whose source and target are identical.")
    ] = False


@dataclass(frozen=True)
class _ModelOptions:
    model: Annotated[str, model_option("--model", help="Hugging Face id or folder of an encoder–decoder model.")]
    revision: Revision = None
    engine: Annotated[
        str,
        model_option(
            "--engine", help="torch, int8, or auto (int8 where it is faster). On Ray: ray, ray:torch or ray:int8."
        ),
    ] = "auto"
    device: Device = "cpu"
    dtype: Dtype = "float32"
    offline: Offline = False
    source_prefix: Annotated[
        str | None, model_option("--source-prefix", help="Text to put before every source (T5).")
    ] = None

    def load(self, engine: str, source_lang: str | None, target_lang: str | None) -> "Seq2Seq":
        from nearmt.models import Seq2Seq

        return Seq2Seq.load(
            self.model,
            revision=self.revision,
            device=self.device,
            dtype=self.dtype,
            source_lang=source_lang,
            target_lang=target_lang,
            source_prefix=self.source_prefix,
            offline=self.offline,
            engine=engine,
        )


_DIMS = 96


def _dims_of(text: str) -> int | None:
    """Parse the dimensions of keys; None for `full`."""
    if text == "full":
        return None
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"--dims takes a number or full, not {text}") from None


@dataclass(frozen=True)
class _TrainingOptions:
    dev: Annotated[
        list[Path] | None,
        training_option(
            "--dev", help="Dev pairs to train on (repeatable). Default: part of the memory.", show_default=False
        ),
    ] = None
    train: Annotated[bool, training_option(" /--no-train", help="Do not train now.", show_default=False)] = True
    max_k: MaxK = 32


@dataclass(frozen=True)
class _IndexOptions:
    index: IndexFactory = None
    uri: MilvusUri = None
    num_probes: Probes = None
    reranked: Rerank = None
    memory: IndexMemory = None
    key_type: Annotated[str, index_option("--keys", help="Type of the stored keys: int8, float16 or float32.")] = "int8"
    dims: Annotated[
        str, index_option("--dims", help="Dimensions of the stored keys, or full to store decoder states whole.")
    ] = str(_DIMS)
    retrieval: Annotated[
        str | None,
        index_option(
            "--retrieval",
            help="Where to search: sentences (those that resemble the source), tokens (of the whole memory, as in the "
            "paper), or both, which lets training choose. Default: sentences, or tokens with --index or --memory.",
            show_default=False,
        ),
    ] = None

    def settings(self, max_k: int, keep_identical: bool) -> "BuildSettings":
        from nearmt.building.builder import BuildSettings

        return BuildSettings(
            key_type=self.key_type,
            dims=_dims_of(self.dims),
            retrieval=self.retrieval,
            index=self.index,
            uri=self.uri,
            num_probes=self.num_probes,
            reranked=self.reranked,
            max_k=max_k,
            memory=bytes_of("--memory", self.memory),
            keep_identical=keep_identical,
        )


@dataclass(frozen=True)
class _OutputOptions:
    out: Annotated[Path, output_option("--out", "-o", help="Folder of the new store.")]
    resume: Annotated[bool, output_option("--resume", help="Continue an unfinished build.")] = False
    force: Annotated[bool, output_option("--force", help="Replace an existing store once the new one is finished.")] = (
        False
    )


def build(
    inputs: MemoryFiles,
    reading: _InputOptions,
    model: _ModelOptions,
    ray: RayOptions,
    indexing: _IndexOptions,
    training: _TrainingOptions,
    output: _OutputOptions,
    run: RunOptions,
) -> None:
    """Build a store from a translation memory and train it."""
    from nearmt.store import build as build_store
    from nearmt.training.train_store import AdaptationSettings

    run.set_threads()
    settings = indexing.settings(training.max_k, reading.keep_identical)
    engine, cluster = ray.resolve(model.engine, run.threads, model.offline)
    try:
        # Ray prints messages of its workers to standard output, which is for the result.
        with reporting(run.quiet) as progress, contextlib.redirect_stdout(sys.stderr):
            store = build_store(
                inputs,
                model=lambda: model.load(engine, reading.source_lang, reading.target_lang),
                out=output.out,
                dev=training.dev or None,
                train=training.train,
                settings=settings,
                adaptation=AdaptationSettings(max_k=training.max_k),
                format=reading.format,
                resume=output.resume,
                force=output.force,
                cluster=cluster,
                progress=progress,
            )
    except KeyboardInterrupt:
        say("interrupted: run the same command with --resume to continue")
        raise typer.Exit(130) from None
    described = store.info()
    if run.as_json:
        print_json(described)
        return
    print_info(described)
    if described["adaptation"] is not None:
        say_doubts(described["adaptation"])
    elif training.train:
        say("The memory is too small to train on: run nearmt train with a dev set, or choose a --method.")
    warn_low_recall(described)
