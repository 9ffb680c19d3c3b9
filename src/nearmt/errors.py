"""All errors that nearmt raises, in one tree.

    NearMTError              base class; the message is one clear sentence
    ├── CorpusError          a translation memory cannot be read
    ├── ModelError           a model cannot be loaded or used
    ├── StoreError           a store cannot be opened, read or written
    │   ├── StoreMismatchError   it belongs to another model, tokenizer, layer or language pair
    │   ├── StoreDamagedError    a file is missing, truncated or changed
    │   └── StoreLockedError     another process is writing to it
    ├── IndexUnavailableError    the search engine that holds a store's index does not answer
    ├── MarkupError          text with tags is not well-formed
    ├── DocumentError        a file to translate cannot be read or written
    ├── OutputError          a file or folder cannot be written
    │   └── OutputExistsError    it exists, and overwriting was not requested
    ├── ClusterError         Ray workers are unavailable or fail
    ├── SettingError         an option or argument is invalid
    └── MissingExtraError    an optional package is missing

Errors of other libraries are converted where they occur. `exit_code` is 2 for an error in the input or its use, and 1
for an error in nearmt itself.
"""


class NearMTError(Exception):
    """Base class of all errors that nearmt raises. The message is one sentence for the user."""

    exit_code = 2


class CorpusError(NearMTError):
    """A translation memory or text file cannot be read."""


class ModelError(NearMTError):
    """A model cannot be loaded, or is of a kind that nearmt cannot use."""


class StoreError(NearMTError):
    """A store cannot be opened, read or written."""


class StoreMismatchError(StoreError):
    """A store belongs to another model, tokenizer, layer or language pair."""


class StoreDamagedError(StoreError):
    """A file of a store is missing, truncated or changed."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class IndexUnavailableError(NearMTError):
    """The search engine that holds a store's index does not answer in time."""


class MarkupError(NearMTError):
    """Text with tags is not well-formed."""


class DocumentError(NearMTError):
    """A file to translate cannot be read or written."""


class OutputError(NearMTError):
    """A file or folder cannot be written."""


class OutputExistsError(OutputError):
    """A file or folder exists, and overwriting it was not requested."""


class ClusterError(NearMTError):
    """Ray workers are unavailable or fail."""


class SettingError(NearMTError):
    """An option or argument is invalid."""


class MissingExtraError(NearMTError):
    """An optional package is missing."""

    def __init__(self, what: str, package: str) -> None:
        quoted = f'"{package}"' if "[" in package else package  # in a shell, brackets are a pattern
        super().__init__(f"{what} needs the package {package}: pip install {quoted}")
