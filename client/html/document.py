"""Write the frame of a page: it contains style and script, and its policy forbids any request."""

import base64
import hashlib

from gputune.client.html.markup import text
from gputune.client.html.script import SCRIPT
from gputune.client.html.style import STYLE


def document(
    title: str,
    heading: str,
    facts: str,
    content: str,
    explained: str,
    *,
    style: str = "",
    script: str = "",
    refresh_seconds: float = 0,
) -> str:
    """Return a whole document. title, heading and facts are text; content and what explains it, at the end, are HTML;
    style and script are added to those of all pages. refresh_seconds: so often a browser reads it again; 0 for
    never."""
    scripts = [SCRIPT, script] if script else [SCRIPT]
    allowed = " ".join(f"'sha256-{_hash(one)}'" for one in scripts)
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds:g}">' if refresh_seconds else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">{refresh}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{STYLE}{style}</style></head><body>'
        f'<header><h1>{text(heading)}</h1><p class="soft">{text(facts)}</p></header>'
        f"{content}<footer>{explained}</footer>"
        f"{''.join(f'<script>{one}</script>' for one in scripts)}</body></html>\n"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
