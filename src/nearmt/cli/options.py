"""Options that several commands share, each defined once.

Single options are `Annotated` aliases; options that belong together are dataclasses (see `nearmt.cli.groups`), each
with methods that make the library's settings.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.errors import SettingError

if TYPE_CHECKING:
    from nearmt.building.compatibility import ModelRequest
    from nearmt.building.ray import RaySettings
    from nearmt.datastore import Filter
    from nearmt.decoding.beam import BeamSettings
    from nearmt.decoding.decoder import DecodingSettings
    from nearmt.methods.registry import MethodRequest

# Options by panel of the help.
input_option = partial(typer.Option, rich_help_panel="Input")
model_option = partial(typer.Option, rich_help_panel="Model")
ray_option = partial(typer.Option, rich_help_panel="Ray")
index_option = partial(typer.Option, rich_help_panel="Index")
retrieval_option = partial(typer.Option, rich_help_panel="Retrieval")
method_option = partial(typer.Option, rich_help_panel="Method")
training_option = partial(typer.Option, rich_help_panel="Training")
decoding_option = partial(typer.Option, rich_help_panel="Decoding")
measuring_option = partial(typer.Option, rich_help_panel="Measurement")
server_option = partial(typer.Option, rich_help_panel="Server")
output_option = partial(typer.Option, rich_help_panel="Output")

StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the store.")]
MemoryFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="TMX, XLIFF, PO, TSV or JSONL files, two line-aligned text files, or - for standard input.",
    ),
]
Format = Annotated[
    str | None,
    input_option("--format", help="tmx, xliff, po, tsv, jsonl or lines. Default: by file name.", show_default=False),
]
StoreModel = Annotated[
    str | None,
    model_option(
        "--model", help="The store's model under another name or path. Default: as in the store.", show_default=False
    ),
]
StoreEngine = Annotated[
    str | None,
    model_option(
        "--engine",
        help="torch, or int8 (Marian, M2M100 and NLLB on a CPU; much faster). Default: the store's.",
        show_default=False,
    ),
]
Revision = Annotated[str | None, model_option("--revision", help="Revision of a model from the Hugging Face hub.")]
Device = Annotated[str, model_option("--device", help="Device to run the model on: cpu, cuda, cuda:1, mps.")]
Dtype = Annotated[
    str, model_option("--dtype", help="Type of the model's weights: float32, float16, bfloat16, or auto (as stored).")
]
Offline = Annotated[bool, model_option("--offline", help="Load the model without network access.")]
IndexFactory = Annotated[
    str | None,
    index_option(
        "--index",
        help="lists, lists:NUMBER, a faiss factory string, or milvus:IVF_FLAT, milvus:HNSW, milvus:DISKANN … with "
        "--uri. Default: by keys and size.",
        show_default=False,
    ),
]
MilvusUri = Annotated[
    str | None,
    index_option("--uri", help="Address of Milvus: http://host:19530, or a file NAME.db for Milvus Lite."),
]
IndexMemory = Annotated[
    str | None,
    index_option("--memory", help="Maximum memory for the index, such as 4G; a larger index stays on disk."),
]
Probes = Annotated[
    int | None,
    index_option(
        "--probes",
        min=1,
        help="Inverted lists to search for each query. Default: 4 of lists, 32 of other indexes.",
        show_default=False,
    ),
]
Rerank = Annotated[
    int | None,
    index_option(
        "--rerank",
        min=0,
        help="Candidates to re-rank by exact distance; 0 keeps the index's distances. Default: 96; not for lists, "
        "which are exact.",
        show_default=False,
    ),
]
FaissProbes = Annotated[int, index_option("--probes", min=1, help="Inverted lists to search for each query.")]
FaissRerank = Annotated[
    int,
    index_option("--rerank", min=0, help="Candidates to re-rank by exact distance; 0 keeps the index's distances."),
]
MaxK = Annotated[int, training_option("--max-k", min=1, help="Maximum number of neighbours for each token.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="CPU threads for the model and the search.", rich_help_panel="Performance"),
]
ServerConfig = Annotated[
    Path | None, server_option("--config", help="TOML file with the server's settings.", show_default=False)
]
AsJson = Annotated[bool, output_option("--json", help="Print the result as JSON.")]
Overwrite = Annotated[bool, output_option("--force", help="Overwrite existing files.")]


@dataclass(frozen=True)
class RunOptions:
    """Options of nearly every command."""

    as_json: AsJson = False
    quiet: Annotated[bool, output_option("--quiet", "-q", help="Suppress progress and messages.")] = False
    threads: Threads = None

    def set_threads(self) -> None:
        set_threads(self.threads)


@dataclass(frozen=True)
class StoredModelOptions:
    """How to load the model of a store on the engine that the store's states were computed with."""

    model: StoreModel = None
    revision: Revision = None
    device: Device = "cpu"
    dtype: Dtype = "float32"
    offline: Offline = False

    def request(self) -> "ModelRequest":
        from nearmt.building.compatibility import ModelRequest

        return ModelRequest(**vars(self))


@dataclass(frozen=True)
class ModelOptions(StoredModelOptions):
    """How to load the model of a store."""

    engine: StoreEngine = None


@dataclass(frozen=True)
class RayOptions:
    """How to decode on Ray."""

    workers: Annotated[
        int | None, ray_option("--workers", min=1, help="Number of workers, with --engine ray. Default: 2.")
    ] = None
    address: Annotated[
        str | None,
        ray_option("--address", help="Address of a running cluster, with --engine ray. Default: start one here."),
    ] = None
    gpus: Annotated[
        float | None, ray_option("--gpus", min=0.0, help="GPUs for each worker, with --engine ray. Default: 0.")
    ] = None

    def resolve(self, engine: str, threads: int | None, offline: bool) -> "tuple[str, RaySettings | None]":
        """Split --engine into the model's engine and, if it names Ray, the settings of Ray."""
        place, _, named = engine.partition(":")
        if place != "ray":
            for name, value in vars(self).items():
                if value is not None:
                    raise SettingError(f"--{name} is for building on Ray: it needs --engine ray")
            return engine, None
        from nearmt.building.ray import RaySettings, check_installed

        check_installed()
        settings = RaySettings(
            workers=self.workers or RaySettings.workers,
            address=self.address,
            threads=threads or 1,
            gpus=self.gpus or 0.0,
            offline=offline,
        )
        return named or ("torch" if settings.gpus else "auto"), settings


@dataclass(frozen=True)
class RetrievalOptions:
    """Which stores and which of their units to search."""

    also: Annotated[
        list[Path] | None,
        retrieval_option("--also", help="Another store of the same model to search (repeatable)."),
    ] = None
    only: Annotated[
        list[str] | None,
        retrieval_option("--only", help="Use only units of this origin (repeatable; wildcards * and ?)."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        retrieval_option("--exclude", help="Do not use units of this origin (repeatable; wildcards * and ?)."),
    ] = None
    since: Annotated[str | None, retrieval_option("--since", help="Use only units changed on or after this date.")] = (
        None
    )
    until: Annotated[str | None, retrieval_option("--until", help="Use only units changed before this date.")] = None

    def filter(self) -> "Filter":
        from nearmt.datastore import Filter

        return Filter(tuple(self.only or ()), tuple(self.exclude or ()), self.since, self.until)


@dataclass(frozen=True)
class MethodOptions:
    """How to mix the model's and the neighbours' probabilities."""

    method: Annotated[
        str,
        method_option(
            "--method",
            help="auto (the best trained network), adaptive, robust, kernel, vanilla, uniform, or base (model alone).",
        ),
    ] = "auto"
    k: Annotated[
        int | None, method_option("--k", min=1, max=1024, help="Number of neighbours, for vanilla and uniform.")
    ] = None
    temperature: Annotated[
        float | None, method_option("--temperature", help="Temperature of the neighbours, for vanilla and uniform.")
    ] = None
    knn_share: Annotated[
        float | None, method_option("--share", help="Weight λ of the neighbours from 0 to 1, for vanilla.")
    ] = None

    def request(self) -> "MethodRequest":
        from nearmt.methods.registry import MethodRequest

        return MethodRequest(self.method, self.k, self.temperature, self.knn_share)


@dataclass(frozen=True)
class BeamOptions:
    """How to search for a translation."""

    num_beams: Annotated[int, decoding_option("--beam", min=1, max=256, help="Beam width.")] = 4
    length_penalty: Annotated[
        float, decoding_option("--length-penalty", help="Exponent p of score = log-probability / length^p.")
    ] = 0.6
    early_stopping: Annotated[
        str, decoding_option("--early-stopping", help="false, true or never, as in transformers' generate.")
    ] = "false"

    def beam(self, num_hypotheses: int = 1) -> "BeamSettings":
        from nearmt.decoding.beam import BeamSettings, EarlyStopping

        meanings: dict[str, EarlyStopping] = {"false": False, "true": True, "never": "never"}
        if self.early_stopping not in meanings:
            raise SettingError(f"--early-stopping takes false, true or never, not {self.early_stopping}")
        if num_hypotheses > self.num_beams:
            raise SettingError(f"--n-best {num_hypotheses} needs a beam at least as wide: --beam {num_hypotheses}")
        return BeamSettings(self.num_beams, self.length_penalty, meanings[self.early_stopping], num_hypotheses)


@dataclass(frozen=True)
class DecodingOptions(BeamOptions):
    """The same for many sentences."""

    batch_size: Annotated[int, decoding_option("--batch-size", min=1, help="Sentences to decode together.")] = 32

    def settings(self, num_hypotheses: int = 1) -> "DecodingSettings":
        from nearmt.decoding.decoder import DecodingSettings

        return DecodingSettings(beam=self.beam(num_hypotheses), batch_size=self.batch_size)


def set_threads(threads: int | None) -> None:
    """Set the number of CPU threads for the model and the search."""
    if threads is not None:
        import faiss
        import torch

        torch.set_num_threads(threads)
        faiss.omp_set_num_threads(threads)
