"""An explained out-of-memory message as text of at most 80 columns: what takes the memory, why, and what would fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.report.comparison import comparison_markdown, comparison_text
from remat.report.markdown import markdown_report, markdown_table
from remat.report.timeline import cut
from remat.report.width import WIDTH, wrapped
from remat.units import bytes_text

if TYPE_CHECKING:
    from remat.inspect.buffers import Occupant
    from remat.inspect.explanation import Explanation
    from remat.targets.out_of_memory import OutOfMemory

ROWS = 15
"""How many rows of what takes the memory are printed."""
PADDED = 0.1
"""The part of all buffers from which on padding is told."""

FAR = 2
"""How many times as many bytes as a function takes are those of something else."""

KINDS = {
    "kept": "kept for the backward pass",
    "argument": "arguments",
    "result": "results",
    "recomputed": "recomputed",
    "transient": "transient",
    "unknown": "not known",
}
NAMES = {"tpu": "a TPU", "gpu": "a GPU", "cpu": "a CPU"}
ON_CHIP = (
    "{} is memory on the chip, which one operation or kernel has for itself: no policy changes that. Make the blocks "
    "of the kernel smaller, or raise the compiler's limit for it."
)
ALONE = (
    "That is what the message tells. For what is kept and why, and for the policies that would fit, give the function "
    "too: remat.explain(error, loss, *args, policy=...), or on the command line: remat explain FILE module:example."
)


def explanation_text(found: Explanation) -> str:
    """The message in one sentence, what takes the memory as a table, and the policies side by side."""
    lines = [*wrapped(_what_happened(found)), ""]
    if found.function is not None:
        lines += [*wrapped(_what_was_run(found)), *_mismatch(found), ""]
    if found.occupants:
        lines += [*_table(found), "", *(line for text in _sums(found) for line in wrapped(text))]
    lines += _padding(found.message)
    if found.message.memory not in ("hbm", "ram"):
        lines += ["", *wrapped(ON_CHIP.format(found.message.memory))]
    elif found.function is None:
        lines += ["", *wrapped(ALONE)]
    if found.comparison is not None:
        lines += ["", *comparison_text(found.comparison).splitlines()]
    if found.function is not None and found.message.memory in ("hbm", "ram"):
        lines += ["", *_what_fits(found)]
    return "\n".join(line.rstrip() for line in _without_double_gaps(lines))


def explanation_markdown(found: Explanation) -> str:
    """What takes the memory as a table in Markdown, and the policies side by side as another."""
    notes = [_what_was_run(found), *_joined(_mismatch(found))] if found.function is not None else []
    notes += [_title_of_table(found), *_sums(found)] if found.occupants else []
    notes += _joined(_padding(found.message))
    if found.message.memory not in ("hbm", "ram"):
        notes.append(ON_CHIP.format(found.message.memory))
    elif found.function is None:
        notes.append(ALONE)
    else:
        notes += _joined(_what_fits(found))
    rows = [_row(g) for g in _groups(found)]
    table = markdown_table(["bytes", "kind", "how many", "type", "what"], rows) if rows else []
    text = markdown_report(_what_happened(found), table, notes)
    return text if found.comparison is None else f"{text}\n\n{comparison_markdown(found.comparison)}"


def _joined(lines: Sequence[str]) -> list[str]:
    """A wrapped sentence in one piece again; nothing of nothing."""
    return [" ".join(" ".join(lines).split())] if lines else []


def _title_of_table(found: Explanation) -> str:
    return "the largest buffers" if found.is_listed else "at the peak (simulated: the message lists no buffers)"


def _what_happened(found: Explanation) -> str:
    message = found.message
    verb = "compiling for" if message.phase == "compiling" else "running on"
    text = f"out of memory{'' if message.memory in ('hbm', 'ram') else f' in {message.memory}'}, "
    text += f"{verb} {NAMES[message.platform]}{message.program and f' ({message.program})'}"
    if message.needed_bytes is not None:
        text += f": {bytes_text(message.needed_bytes)} {'needed' if message.holds_arguments else 'asked for'}"
    if message.lacking_bytes is not None and message.limit_bytes is not None:
        there = "there are" if message.holds_arguments else "free"
        more = f"{bytes_text(message.lacking_bytes)} too much" if message.lacking_bytes else "but not in one piece"
        text += f", {bytes_text(message.limit_bytes)} {there}, {more}"
    elif found.limit_bytes is None:
        text += "; the message does not say how much there is"
    return text


def _what_was_run(found: Explanation) -> str:
    text = f"{found.function}, value and gradient, policy {found.policy}, for {found.target}"
    row = found.comparison.rows[0] if found.comparison else None
    if row is not None and row.peak_bytes is not None and found.comparison is not None:
        held = bytes_text(found.comparison.argument_bytes)
        text += f"; simulated: {bytes_text(row.peak_bytes)}, and {held} of arguments"
    if found.devices > 1:
        text += f", on {found.devices} devices together"
    return text


def _mismatch(found: Explanation) -> list[str]:
    """Told where the message speaks of much more than the function takes."""
    message, row = found.message, found.comparison.rows[0] if found.comparison else None
    taken = None if row is None else row.total_bytes if message.holds_arguments else row.peak_bytes
    if taken is None or message.needed_bytes is None or message.needed_bytes * found.devices <= FAR * taken:
        return []
    return wrapped(
        f"The message is about {bytes_text(message.needed_bytes)}, {found.function} takes {bytes_text(taken)} of it as "
        "simulated: most is of something else, or it ran with another policy or other shapes."
    )


def _groups(found: Explanation) -> list[list[Occupant]]:
    """What is the same but for where it is, as one row; the largest first."""
    groups: dict[tuple[object, ...], list[Occupant]] = {}
    for o in found.occupants:
        whole = o.kind in ("argument", "result")
        key = (o.kind, o.type) if whole else (o.kind, o.type, o.name, o.operation, o.source)
        groups.setdefault(key, []).append(o)
    return sorted(groups.values(), key=lambda g: -sum(o.total_bytes for o in g))


def _table(found: Explanation) -> list[str]:
    ordered = _groups(found)
    rows = [_row(g) for g in ordered[:ROWS]]
    widths = [max(map(len, column)) for column in zip(*(r[1:4] for r in rows), strict=True)]
    widths[2] = min(widths[2], 24)
    lines = [_title_of_table(found)]
    for size, kind, count, type, what in rows:
        start = f"{size:>10}  {kind:<{widths[0]}}  {count:>{widths[1]}} {cut(type, widths[2]):<{widths[2]}}  "
        lines.append(cut(f"{start}{what}", WIDTH))
    rest = [o for g in ordered[ROWS:] for o in g]
    if rest:
        lines.append(f"{bytes_text(sum(o.total_bytes for o in rest)):>10}  in {sum(o.count for o in rest)} more")
    return lines


def _row(group: Sequence[Occupant]) -> tuple[str, str, str, str, str]:
    o = group[0]
    count = sum(each.count for each in group)
    what = f"'{o.name}'" if o.name is not None else o.operation
    if len({each.operation for each in group}) > 1:
        what += ", and others"
    place = o.source.short.removesuffix(" ()")
    guess = "?" if o.matched == "type" and o.kind != "argument" else ""
    made = f" ({o.made} pass)" if o.kind == "unknown" and o.made else ""
    text = "  ".join(part for part in (f"{what}{guess}{made}", place) if part)
    size = bytes_text(sum(each.total_bytes for each in group))
    return size, o.kind, f"{count} x" if count > 1 else "", o.type, text


def _sums(found: Explanation) -> list[str]:
    """What the rows are, in all, and why what is kept is."""
    parts = [f"{bytes_text(found.bytes_of(kind))} {text}" for kind, text in KINDS.items() if found.bytes_of(kind)]
    lines = [f"in all: {', '.join(parts)}"]
    reasons: dict[str, int] = {}
    for o in found.occupants:
        if o.kind == "kept" and o.reason:
            reasons[o.reason] = reasons.get(o.reason, 0) + o.total_bytes
    for reason, size in sorted(reasons.items(), key=lambda pair: -pair[1]):
        lines.append(f"kept, {bytes_text(size)}: {reason}")
    if any(o.matched == "type" and o.kind != "argument" for o in found.occupants):
        lines.append("?: recognized by nothing but its type")
    return lines


def _padding(message: OutOfMemory) -> list[str]:
    padded = sum(b.bytes - b.unpadded_bytes for b in message.buffers if b.unpadded_bytes)
    if padded < PADDED * sum(b.bytes for b in message.buffers) or not padded:
        return []
    worst = max(message.buffers, key=lambda b: b.bytes - (b.unpadded_bytes or b.bytes))
    return wrapped(
        f"{bytes_text(padded)} of the buffers is padding, which the device's layout adds, most of it to {worst.type}. "
        "No policy changes that; last dimensions that are multiples of 128 do."
    )


def _what_fits(found: Explanation) -> list[str]:
    lacking, comparison, fit = found.message.lacking_bytes, found.comparison, found.fit
    first = comparison.rows[0] if comparison else None
    if comparison is None or first is None or first.total_bytes is None:
        return []
    if fit is None:
        advice = "" if found.message.platform == "cpu" else " Name the device: target='gpu:H100', or --target gpu:H100."
        return wrapped(
            f"The message does not say how much memory there is, so nobody knows which of these fit.{advice}"
        )
    if lacking == 0:
        need = f"To fit, it has to take less than with policy {first.policy}"
    elif lacking is not None:
        need = f"To fit, it has to take {bytes_text(lacking * found.devices)} less than with policy {first.policy}"
    else:
        limit = bytes_text(found.limit_bytes or 0)
        need = f"There are {limit} on {found.target} (data sheet; the driver and JAX take some of it)"
    best = found.advised
    if best is not None and best.total_bytes is not None:
        saved = bytes_text(first.total_bytes - best.total_bytes)
        moved = f", with {bytes_text(best.host_bytes)} in the host's memory" if best.host_bytes else ""
        return wrapped(
            f"{need}. {len(fit.rows)} of {fit.count} policies fit (simulated); {best.policy} recomputes least: it "
            f"takes {saved} less{moved}."
        )
    return [*wrapped(f"{need}. None of {fit.count} policies fits (simulated). {_beside_policies(found)}")]


def _beside_policies(found: Explanation) -> str:
    held = found.comparison.argument_bytes if found.comparison else 0
    if found.fit is not None and held > found.fit.limit_bytes:
        return (
            f"The arguments alone take {bytes_text(held)}, which no policy changes: shard them over more devices, or "
            "hold them in a smaller type."
        )
    least = found.fit.smallest if found.fit is not None else None
    most = f"{least.policy} takes least: {bytes_text(least.total_bytes or 0)}, arguments included. " if least else ""
    return f"{most}A smaller batch, or more devices, would do."


def _without_double_gaps(lines: Sequence[str]) -> list[str]:
    return [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
