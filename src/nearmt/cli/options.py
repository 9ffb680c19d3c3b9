"""Options that several commands share, each spelt once."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.errors import SettingError

if TYPE_CHECKING:
    from nearmt.building.ray import RaySettings
    from nearmt.decoding.decoder import DecodingSettings

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")]
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the store.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="The store's model under another name or at another place.")
]
IndexOption = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="faiss factory string, or milvus:IVF_FLAT, milvus:HNSW, milvus:DISKANN … with --uri; else by size.",
    ),
]
UriOption = Annotated[
    str | None,
    typer.Option("--uri", help="Where Milvus is: http://host:19530, or a file NAME.db for Milvus Lite."),
]
MemoryOption = Annotated[
    str | None,
    typer.Option("--memory", help="Memory that the index may take, such as 4G; a larger one stays on disk."),
]
Probes = Annotated[int, typer.Option("--probes", min=1, help="Inverted lists searched for each query.")]
Rerank = Annotated[
    int, typer.Option("--rerank", min=0, help="Candidates measured exactly; 0 keeps the index's own distances.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Load the model only from this machine.")]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="torch or int8 (Marian, M2M100, NLLB on a CPU: much faster); else the store's."),
]
Format = Annotated[
    str | None, typer.Option("--format", help="tmx, xliff, po, tsv, jsonl or lines; else by the file's name.")
]
Also = Annotated[
    list[Path] | None,
    typer.Option("--also", help="A further store of the same model to search (may be given again)."),
]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Use only what comes from this origin (may be given again; * and ?).")
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", help="Use nothing of this origin (may be given again; * and ?).")
]
Since = Annotated[str | None, typer.Option("--since", help="Use only what was changed on this date or later.")]
Until = Annotated[str | None, typer.Option("--until", help="Use only what was changed before this date.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Processor threads to use.")]
MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        help="auto (the best network of the store), adaptive, robust, kernel, vanilla, uniform, or base (no memory).",
    ),
]
K = Annotated[int | None, typer.Option("--k", min=1, max=1024, help="Neighbours, for vanilla and uniform.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="T, for vanilla and uniform.")]
Share = Annotated[float | None, typer.Option("--share", help="The retrieved share, for vanilla.")]
Beam = Annotated[int, typer.Option("--beam", min=1, max=256, help="Hypotheses kept at each step.")]
LengthPenalty = Annotated[float, typer.Option("--length-penalty", help="Score is log-probability / length^this.")]
EarlyStopping = Annotated[str, typer.Option("--early-stopping", help="false, true or never, as `generate` means it.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Sentences decoded together.")]


def decoding_settings(
    beam: int, length_penalty: float, early_stopping: str, batch_size: int, num_hypotheses: int = 1
) -> "DecodingSettings":
    """Decoding settings from the options."""
    from nearmt.decoding.beam import BeamSettings, EarlyStopping
    from nearmt.decoding.decoder import DecodingSettings
    from nearmt.errors import SettingError

    meanings: dict[str, EarlyStopping] = {"false": False, "true": True, "never": "never"}
    if early_stopping not in meanings:
        raise SettingError(f"--early-stopping takes false, true or never, not {early_stopping}")
    if num_hypotheses > beam:
        raise SettingError(f"--n-best {num_hypotheses} needs a beam at least as wide: --beam {num_hypotheses}")
    return DecodingSettings(
        beam=BeamSettings(beam, length_penalty, meanings[early_stopping], num_hypotheses), batch_size=batch_size
    )


def ray_options(
    engine: str, *, workers: int | None, address: str | None, gpus: float | None, threads: int | None, offline: bool
) -> "tuple[str, RaySettings | None]":
    """What --engine says of the model's engine, and how to decode on Ray if it says so too."""
    from nearmt.errors import SettingError

    place, _, named = engine.partition(":")
    if place != "ray":
        for option, value in (("--workers", workers), ("--address", address), ("--gpus", gpus)):
            if value is not None:
                raise SettingError(f"{option} is for building on Ray: it needs --engine ray")
        return engine, None
    from nearmt.building.ray import RaySettings, check_installed

    check_installed()
    settings = RaySettings(
        workers=RaySettings.workers if workers is None else workers, address=address, threads=threads or 1,
        gpus=gpus or 0.0, offline=offline,
    )  # fmt: skip
    return named or ("torch" if settings.gpus else "auto"), settings


def names_of(listed: str) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in listed.split(","))


def numbers_of(option: str, listed: str) -> tuple[int, ...]:
    """Numbers with commas between."""
    from nearmt.errors import SettingError

    try:
        return tuple(int(number) for number in names_of(listed))
    except ValueError:
        raise SettingError(f"{option} takes whole numbers with commas between, not {listed}") from None


def set_threads(threads: int | None) -> None:
    """Use so many processor threads for the model and for the search."""
    if threads is not None:
        import faiss
        import torch

        torch.set_num_threads(threads)
        faiss.omp_set_num_threads(threads)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(option: str, text: str | None) -> int | None:
    """A number of bytes written as 500M or 4G."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise SettingError(f"{option} wants a number of bytes such as 500M or 4G, not {text!r}")
    return int(float(found[1]) * _UNITS[found[2].upper()])
