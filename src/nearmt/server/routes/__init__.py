"""One module per API: native, LibreTranslate, DeepL, Apertium, and the files of the page."""
