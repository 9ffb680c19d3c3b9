"""HTTP: native, LibreTranslate- and DeepL-compatible routes over one translator, with batching across requests.

`settings` and `configuration` say what may be set; `access` who may do what; `stores` holds them and their models;
`orders` and `batching` decode together what arrives together; `translation` turns a request into sentences and back;
`native_…`, `libretranslate`, `deepl_…` and `apertium` are the routes; `guard` stands before all of them.
"""
