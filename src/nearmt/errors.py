"""The errors a user of nearmt can meet, in one tree.

    NearMTError              whatever nearmt raises on purpose; the message is one clear sentence
    ├── CorpusError          a translation memory cannot be read
    ├── ModelError           a model cannot be loaded or does not fit the interface
    ├── StoreError           a store cannot be opened, read or written
    │   ├── StoreMismatchError   it belongs to another model, tokenizer, layer or language pair
    │   ├── StoreDamagedError    a file is missing, cut short or changed
    │   └── StoreLockedError     another process is writing to it
    ├── IndexUnavailableError    the search engine that holds a store's index does not answer
    ├── MarkupError          text with tags is not well-formed
    ├── DocumentError        a file to translate cannot be read or written
    ├── OutputError          a file or folder cannot be written where it was asked for
    │   └── OutputExistsError    there is one already, and overwriting it was not asked for
    ├── ClusterError         workers on Ray cannot be had, or fail
    ├── SettingError         an option or argument that makes no sense
    └── MissingExtraError    an optional package is needed

Errors of other libraries are mapped to these where they enter. `exit_code` is 2 where the input or its
user is at fault, 1 where we are.
"""


class NearMTError(Exception):
    """Base of everything nearmt raises on purpose. The message is one sentence for the user."""

    exit_code = 2


class CorpusError(NearMTError):
    """A translation memory or text file cannot be read."""


class ModelError(NearMTError):
    """A model cannot be loaded, or does not fit the interface nearmt needs."""


class StoreError(NearMTError):
    """A store cannot be opened, read or written."""


class StoreMismatchError(StoreError):
    """A store belongs to another model, tokenizer, layer or language pair."""


class StoreDamagedError(StoreError):
    """A file of a store is missing, cut short or changed."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class IndexUnavailableError(NearMTError):
    """The search engine that holds a store's index does not answer, or not in time."""


class MarkupError(NearMTError):
    """Text with tags is not well-formed."""


class DocumentError(NearMTError):
    """A file to translate cannot be read or written."""


class OutputError(NearMTError):
    """A file or folder cannot be written where it was asked for."""


class OutputExistsError(OutputError):
    """There is a file or folder already, and overwriting it was not asked for."""


class ClusterError(NearMTError):
    """Workers on Ray cannot be had, or fail."""


class SettingError(NearMTError):
    """An option or argument that makes no sense."""


class MissingExtraError(NearMTError):
    """An optional package is needed for what was asked."""

    def __init__(self, what: str, package: str) -> None:
        spelt = f'"{package}"' if "[" in package else package  # shells take brackets for a pattern
        super().__init__(f"{what} needs the package {package}: pip install {spelt}")
