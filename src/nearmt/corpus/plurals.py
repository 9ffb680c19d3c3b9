"""The plural forms of gettext: which form of a target language translates the singular."""

import gettext
import re

_PLURAL_FORMS = re.compile(r"nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=\s*([^;\n]+)")


class PluralForms:
    """The Plural-Forms field of a PO header; `number` is 0 if the header does not have one."""

    def __init__(self, header: str) -> None:
        found = _PLURAL_FORMS.search(header)
        self.number = int(found[1]) if found else 0
        self._form_of_one = 0
        if found and self.number > 1:
            try:
                self._form_of_one = gettext.c2py(found[2].strip())(1)
            except (ValueError, ZeroDivisionError):
                self._form_of_one = 0

    def is_singular(self, form: int) -> bool:
        """True for the form that is used with 1. A language with a single form has none: it translates the plural."""
        return self.number != 1 and form == self._form_of_one
