"""HTTP server: native, LibreTranslate, DeepL and Apertium APIs, with batching across requests.

`settings` and `configuration` define the configuration and read it. `http` holds what any web service needs,
`service` translates and keeps the stores, `routes` maps each API to the service, and `page` holds the web page. `app`
assembles them and `run` starts the process.
"""
