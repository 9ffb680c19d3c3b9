"""One module per group of routes: native API, LibreTranslate, DeepL, Apertium and the files of the web page."""
