"""Exit with 0 if the server in this container answers its health route, else with 1 and the reason."""

import os
import sys
import urllib.error
import urllib.request


def main() -> None:
    port = os.environ.get("NEARMT_SERVER_PORT", "8080")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=5):
            pass
    except urllib.error.HTTPError as error:
        if error.code >= 500:  # 400 is an answer too: allowed_hosts need not name 127.0.0.1
            sys.exit(f"unhealthy: {error}")
    except OSError as error:
        sys.exit(f"unhealthy: {error}")


if __name__ == "__main__":
    main()
