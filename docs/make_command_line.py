"""Write docs/command_line.md from the command itself: python docs/make_command_line.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pairsym_dask.cli import pairsym

PAGE = Path(__file__).parent / "command_line.md"
INTRODUCTION = """\
# Command line

The same words as in Python. `pairsym COMMAND --help` says what is below; this page is made from it by
`python docs/make_command_line.py`.

Paths are local or any address that fsspec knows, such as `s3://bucket/plays.zarr` (see [scaling](scaling.md)). Errors
are one sentence on stderr. Exit codes: 0 done; 2 something to be mended by you; 3 a store is not sound (`verify`); 130
interrupted. Progress goes to stderr: a bar on a terminal, a line a sweep elsewhere.

From a file of pairs to recommendations:

```sh
printf 'user,item\\nann,go\\nann,chess\\nbob,go\\nbob,poker\\neve,chess\\neve,go\\n' > plays.csv
pairsym ingest plays.csv plays.zarr
pairsym split plays.zarr train.zarr held_out.csv
pairsym fit train.zarr model.zarr --factors 2 --sweeps 5
pairsym evaluate model.zarr held_out.csv
pairsym recommend model.zarr ann eve -n 2
pairsym info model.zarr
pairsym verify model.zarr
```
"""


def page() -> str:
    parts = [INTRODUCTION]
    for name in pairsym.list_commands(click.Context(pairsym)):
        parts.append(_section(name, pairsym.commands[name]))
    return "\n".join(parts)


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"pairsym {name}", **command.context_settings)
    usage = command.get_usage(context).removeprefix("Usage: ")
    usage = " ".join(usage.split())
    lines = [f"## {name}", "", (command.help or "").strip(), "", f"    {usage}", ""]
    rows = [_row(option) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(option: click.Option) -> str:
    words = ", ".join(f"`{word}`" for word in option.opts)
    if option.secondary_opts:
        words += " / " + ", ".join(f"`{word}`" for word in option.secondary_opts)
    elif not option.is_flag:
        words += f" {_kind(option)}"
    meaning, default = option.help or "", ""
    if "[default:" in meaning:
        meaning, default = meaning.rstrip(". ").removesuffix("]").split(" [default: ")
    elif isinstance(option.show_default, str):
        default = option.show_default
    elif option.show_default:
        default = f"`{_default(option)}`"
    return f"| {words} | {meaning.replace('|', chr(92) + '|')} | {default} |"


def _kind(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " or ".join(option.type.choices)
    return option.metavar or {"integer": "N", "integer range": "N", "float": "X"}.get(option.type.name, "TEXT")


def _default(option: click.Option) -> Any:
    if option.secondary_opts:
        return (option.opts if option.default else option.secondary_opts)[0]
    return option.default


if __name__ == "__main__":
    PAGE.write_text(page())
