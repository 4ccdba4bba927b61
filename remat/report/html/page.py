"""An overview as one HTML page that needs nothing else: no network, no framework, no build step."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from remat.inspect.compare import POLICIES
from remat.inspect.overview import Overview, Remark, overview
from remat.targets.target import Target
from remat.units import bytes_text

SCRIPTS = ("common.js", "timeline.js", "programs.js", "kept.js", "policies.js")
"""In the order in which they stand on the page; each uses those before it."""


def html_report(
    fun: Callable[..., Any],
    /,
    *args: Any,
    policy: Any = None,
    policies: Sequence[Any] = POLICIES,
    target: Target | str | None = None,
    budget: Any = None,
    argnums: int | Sequence[int] = 0,
    measure: bool = False,
    **kwargs: Any,
) -> str:
    """What `remat.value_and_grad(fun, argnums, policy=policy)` keeps, recomputes and takes, as an HTML page.

    The page shows live bytes step by step and what is alive at each, what is kept and why, the forward and the backward
    program, other policies and plans, and what remat warns of. It is one file that needs no network. Nothing is run.

    **Arguments**

    - `fun`: a function that returns a floating point scalar.
    - `args`, `kwargs`: its arguments; shapes are enough (`jax.ShapeDtypeStruct`).
    - `policy`: as for `remat.grad`; None keeps what JAX keeps. The report is about this one.
    - `policies`: those that it is compared with.
    - `target`: for whose compiler, such as `"tpu:v5e:2x2"`, as for `remat.measure`. None is what JAX would run on.
    - `budget`: as for `remat.plan`; the plan for it is compared too, and if it is in bytes, the charts show the limit.
    - `argnums`: the arguments that are differentiated.
    - `measure`: whether the programs are compiled for the target too, which takes its time.

    **Returns** the text of the page.

    **Raises** what `remat.value_and_grad` raises for bad functions, arguments and policies, `TargetError` for bad
    targets, `TargetUnavailableError` for one whose compiler is not installed if programs are compiled, and
    `PolicyError` for what is no budget. Other policies that fail are findings on the page.

    >>> import pathlib, tempfile, jax.numpy as jnp, remat
    >>> def loss(w, x):
    ...     return jnp.sin(jnp.sin(x @ w)).sum()
    >>> page = remat.html_report(loss, jnp.ones((8, 8)), jnp.ones((8, 8)), policy="dots", policies=["nothing"])
    >>> file = pathlib.Path(tempfile.mkdtemp(), "report.html")
    >>> _ = file.write_text(page)
    >>> page.startswith("<!doctype html>")
    True
    """
    found = overview(
        fun, args, kwargs, policy=policy, policies=policies, target=target, budget=budget, argnums=argnums,
        measure=measure,
    )  # fmt: skip
    return html_text(found)


def html_text(found: Overview) -> str:
    """The page of an overview. All texts in it are escaped, in the markup and in the data."""
    return _filled(
        _file("template.html"),
        {
            "title": html.escape(f"{found.function} under {found.policy}"),
            "style": _file("style.css"),
            "script": "\n".join(map(_file, SCRIPTS)),
            "data": _inside_script(found.to_json()),
            "function": html.escape(found.function),
            "policy": html.escape(found.policy),
            "target": html.escape(found.target),
            "totals": "\n".join(_totals(found)),
            "findings_count": str(len(found.findings)),
            "findings": _findings(found.findings),
            "figures": _figures(found),
            "versions": html.escape(", ".join(f"{name} {version}" for name, version in found.comparison.versions)),
        },
    )


def _file(name: str) -> str:
    return resources.files("remat.report.html").joinpath(name).read_text("utf-8")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template with the values in place of `{{their names}}`; what is in values is not looked into."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _inside_script(data: str) -> str:
    """JSON that nothing in it can end the script element of."""
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _totals(found: Overview) -> list[str]:
    """The sizes that sum it up, each with how it is known."""
    totals = found.totals
    count = totals["kept_values"] or 0
    kept = f"predicted, {count:,} value{'' if count == 1 else 's'}"
    if totals["offloaded_bytes"]:
        kept += f", of these {bytes_text(totals['offloaded_bytes'])} in host memory"
    rows = [
        ("kept_bytes", "kept for the backward pass", kept),
        ("peak_bytes", "peak of live bytes", f"simulated, at step {found.timeline.peak_step:,}"),
        ("set_aside_bytes", "set aside", "simulated, results and temporaries as compiled"),
        ("measured_bytes", "results and temporaries", "measured, by compiling"),
        ("argument_bytes", "arguments", "by type, the caller holds them"),
    ]
    return [_total(key, title, totals[key], how) for key, title, how in rows if totals[key] is not None]


def _total(key: str, title: str, size: int | None, how: str) -> str:
    return (
        f'<div><dt>{title}</dt><dd data-total="{key}" data-bytes="{size}"><strong>{bytes_text(size or 0)}</strong> '
        f"<span>{html.escape(how)}</span></dd></div>"
    )


def _findings(findings: Sequence[Remark]) -> str:
    if not findings:
        return "<p>There is nothing to warn of under any of the policies compared.</p>"
    return f"<ul>{''.join(map(_finding, findings))}</ul>"


def _finding(finding: Remark) -> str:
    kind, policy, text = map(html.escape, (finding.kind, finding.policy, finding.text))
    return f'<li class="{kind}"><strong>{kind}</strong> <code>{policy}</code> {text}</li>'


def _figures(found: Overview) -> str:
    """How the figures on the page came about."""
    if found.comparison.measured:
        return "Bytes called measured are of compiled programs; all others are predicted or simulated from the program."
    return "All figures are predicted or simulated from the program; nothing was compiled, run or measured."
