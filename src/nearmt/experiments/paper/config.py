"""The configuration of the experiments, read from a TOML file. Unknown keys are an error."""

import tomllib
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from nearmt.errors import MissingExtraError, SettingError
from nearmt.methods.registry import VARIANTS

READY = Path(__file__).parent / "configs"
SECTIONS = (
    "main",
    "metrics",
    "matches",
    "relatives",
    "generality",
    "robustness",
    "features",
    "training_sentences",
    "hidden_sizes",
    "controls",
    "timing",
    "statistics",
    "case_study",
)
_LISTS_OF_COUNTS = ("k", "seeds", "training_sentences", "hidden_sizes", "timing_batch_sizes", "timing_k")
_COUNTS = (
    "judged_sentences",
    "judged_settings",
    "steps",
    "features_k",
    "timing_sentences",
    "timing_rounds",
    "beam",
    "batch_size",
)
_DEMO_PREFIX = "nearmt_demo:"
_DEMO_MODEL = _DEMO_PREFIX + "model"


@dataclass(frozen=True)
class DomainConfig:
    """A translation memory, its dev and test sets, and the paper's vanilla settings for it."""

    name: str
    memory: tuple[Path, ...]
    dev: Path
    test: Path
    paper_share: float = 0.8
    paper_temperature: float = 10.0


@dataclass(frozen=True)
class PaperConfig:
    """The model, the domains, and the size of each experiment."""

    title: str
    model: str
    domains: tuple[DomainConfig, ...]
    source_lang: str | None = None
    target_lang: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    general: Path | None = None  # out-of-domain text, which a memory should not harm
    sections: tuple[str, ...] = SECTIONS
    k: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    seeds: tuple[int, ...] = (1, 2, 3)
    relatives: tuple[str, ...] = VARIANTS  # the variants to compare
    paper_protocol: bool = False  # as in the paper: train and select on all of dev, raw features, fixed T
    test_sentences: int | None = None  # use only the first sentences of each test set
    judged_sentences: int = 200  # held-out sentences to decode when choosing settings
    judged_settings: int = 5  # settings to try on them, besides the paper's own
    steps: int = 5000
    features_k: int = 8
    training_sentences: tuple[int, ...] = (100, 200, 400, 800)
    hidden_sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    timing_batch_sizes: tuple[int, ...] = (1, 16, 32, 64)
    timing_k: tuple[int, ...] = (8, 32)
    timing_sentences: int = 64
    timing_rounds: int = 3
    engine: str = "torch"  # float32, so that scores do not depend on the processor; "auto" is faster
    beam: int = 4
    length_penalty: float = 0.6
    batch_size: int = 32
    index: str | None = None
    num_probes: int | None = None
    reranked: int | None = None
    folder: Path = field(default=Path(), compare=False)  # base of relative paths

    def __post_init__(self) -> None:
        _check(self)

    @property
    def max_k(self) -> int:
        """The largest K: how many neighbours each search retrieves."""
        return max(self.k)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration for the results file, without the folders of the files."""
        content = asdict(self)
        del content["folder"]
        for domain in content["domains"]:
            domain["memory"] = [path.name for path in domain["memory"]]
            domain["dev"], domain["test"] = domain["dev"].name, domain["test"].name
        content["general"] = self.general.name if self.general else None
        content["model"] = shown_model(self.model)
        return content


def shown_model(model: str) -> str:
    """Return a hub id unchanged, and only the last two parts of a folder."""
    return "/".join(Path(model).parts[-2:]) if Path(model).is_absolute() else model


def find_config(name: str | Path) -> Path:
    """Return the path of a TOML file, or of a ready-made configuration by its name."""
    path, ready = Path(name), READY / f"{name}.toml"
    if path.is_file():
        return path
    if ready.is_file():
        return ready
    names = ", ".join(sorted(p.stem for p in READY.glob("*.toml")))
    raise SettingError(f"there is no file {name}; the ready-made configurations are {names}")


def load_config(name: str | Path) -> PaperConfig:
    """Read and check a configuration."""
    path = find_config(name)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    return _parse(content, path)


def _parse(content: dict[str, Any], path: Path) -> PaperConfig:
    folder = path.parent.absolute()
    domains = content.pop("domains", None)
    if not isinstance(domains, list) or not domains or not all(isinstance(domain, dict) for domain in domains):
        raise SettingError(f"{path} needs at least one [[domains]] with name, memory, dev and test")
    parsed = []
    for number, domain in enumerate(domains, 1):
        where = f"{path}, domain {domain.get('name', number)}"
        _check_keys(domain, DomainConfig, where)
        memory = domain["memory"] if isinstance(domain["memory"], list) else [domain["memory"]]
        files = [found for item in memory for found in _files(item, folder, where)]
        texts = {key: _files(domain[key], folder, where)[0] for key in ("dev", "test")}
        parsed.append(DomainConfig(**{**domain, **texts, "memory": tuple(files)}))
    _check_keys(content, PaperConfig, str(path), excluded=("domains", "folder"))
    if content.get("general") is not None:
        content["general"] = _files(content["general"], folder, str(path))[0]
    model = str(content["model"])
    if model.startswith((_DEMO_PREFIX, ".")):
        content["model"] = str(_resolve(model, folder))
    lists = {key: tuple(value) for key, value in content.items() if isinstance(value, list)}
    try:
        return PaperConfig(**{**content, **lists, "domains": tuple(parsed), "folder": folder})
    except TypeError as error:
        raise SettingError(f"{path}: a value has the wrong type: {error}") from error


def _check_keys(content: dict[str, Any], kind: type, where: str, excluded: tuple[str, ...] = ()) -> None:
    known = {f.name: f for f in fields(kind) if f.name not in excluded}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise SettingError(f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(known)}")
    required = [name for name, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in content]
    if missing:
        raise SettingError(f"{where}: {', '.join(missing)} is missing")


def _resolve(item: str, folder: Path) -> Path:
    """Return a path relative to the configuration, one inside the package nearmt-demo, or that of its model."""
    if item.startswith(_DEMO_PREFIX):
        try:
            package = import_module("nearmt_demo")
        except ImportError:
            raise MissingExtraError("this configuration", "nearmt-demo") from None
        if item == _DEMO_MODEL:
            return Path(package.model_folder())
        return Path(str(package.__file__)).parent / item.removeprefix(_DEMO_PREFIX)
    return folder / Path(item).expanduser()


def _files(item: Any, folder: Path, where: str) -> list[Path]:
    if not isinstance(item, str):
        raise SettingError(f"{where}: {item!r} must be the path of a file")
    path = _resolve(item, folder)
    if any(char in path.name for char in "*?["):
        found = sorted(path.parent.glob(path.name))
    else:
        found = [path] if path.is_file() else []
    if not found:
        raise SettingError(f"{where}: there is no file {path}")
    return found


def _check(config: PaperConfig) -> None:
    names = [domain.name for domain in config.domains]
    if len(set(names)) != len(names):
        raise SettingError("two domains have the same name")
    for key, known in (("sections", SECTIONS), ("relatives", VARIANTS)):
        unknown = set(getattr(config, key)) - set(known)
        if unknown:
            raise SettingError(f"`{key}`: unknown {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    for key in _LISTS_OF_COUNTS:
        values = getattr(config, key)
        if not isinstance(values, tuple) or not values or not all(_is_count(value) for value in values):
            raise SettingError(f"`{key}` must be a list of whole numbers of at least 1")
    for key in (*_COUNTS, *(["test_sentences"] if config.test_sentences is not None else [])):
        if not _is_count(getattr(config, key)):
            raise SettingError(f"`{key}` must be a whole number of at least 1")
    if config.features_k > config.max_k or max(config.timing_k) > config.max_k:
        raise SettingError(f"`features_k` and `timing_k` cannot exceed the largest `k`, {config.max_k}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
