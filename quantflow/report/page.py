"""What every page has: escaping, formats of numbers, its own style and script and a policy for no others."""

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from quantflow.report import figures
from quantflow.report.text import beginning, ending, shown, token, whole
from quantflow.report.wording import Language, load_wording

STYLES = ("base.css", "charts.css", "narrow.css", "print.css")
SCRIPT = "report.js"


@cache
def page_environment(language: Language) -> Environment:
    """Templates of pages in a language: `t` gives its words; `policy` is that of `style` and `script`."""
    words = load_wording(language)
    loader = PackageLoader("quantflow.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: shown(value, words) if type(value) is str else value,
    )
    environment.filters.update(
        count=figures.count,
        size=figures.size,
        perplexity=figures.perplexity,
        nats=figures.nats,
        percent=figures.percent,
        signed_percent=figures.signed_percent,
        seconds=figures.seconds,
        flatten=figures.flatten,
        whole=whole,
        beginning=beginning,
        ending=ending,
        token=token,
    )
    style = "".join(loader.get_source(environment, name)[0] for name in STYLES)
    script = loader.get_source(environment, SCRIPT)[0]
    environment.globals.update(
        t=words, style=Markup(style), script=Markup(script), policy=policy(style, script)
    )
    return environment


def policy(style: str, script: str) -> str:
    """The content security policy of a page with this style and this script, and nothing else."""
    own = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
