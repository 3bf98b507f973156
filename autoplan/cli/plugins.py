"""`autoplan plugins`: what is installed, what it yields, and what is wrong with it."""

from __future__ import annotations

from autoplan.cli import options
from autoplan.cli.output import clean_stdout, document, result


def plugins(as_json: options.Json = False) -> None:
    """List the plugins with version, what they yield, and the error of each that failed."""
    from autoplan.plugins import registry
    from autoplan.report.plugins import plugins_document, plugins_text

    with clean_stdout():
        # Not strict, whatever the environment says: this is where failures are looked up.
        found = registry(strict=False).plugins
    if as_json:
        document(plugins_document(found))
    else:
        result(plugins_text(found))
