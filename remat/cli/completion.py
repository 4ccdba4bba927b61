"""`remat completion`: what a shell has to run so that the tab key completes commands, options, policies and targets."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

VARIABLE = "_REMAT_COMPLETE"
"""The environment variable by which a shell asks the command for completions, as click has it."""

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:$COMP_POINT}" completion type value
    local word="${line##*[[:space:]]}" begun=""
    # bash takes colons and equals signs for ends of words, and replaces only what comes after the last of them
    [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && begun="${word%%"${word##*:}"}"
    COMPREPLY=()
    for completion in $(env COMP_WORDS="$line" %(complete_var)s=rematbash_complete $1); do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            compopt -o default
        else
            [[ "$value" == *: || "$value" == *= ]] && compopt -o nospace
            COMPREPLY+=("${value#"${begun#*=}"}")
        fi
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class ColonsInBash(BashComplete):
    """Completion for bash of words that have colons in them, as policies and targets do.

    Bash hands over what it takes for words, which end at colons; so the line is read here as a whole.
    """

    name: ClassVar[str] = "rematbash"
    source_template: ClassVar[str] = _BASH

    @staticmethod
    def _check_version() -> None:
        """The script is printed wherever it will be used."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        if not words or line[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]


class CommasInFish(FishComplete):
    """Completion for fish of words that have commas in them, which click's script takes for ends of values."""

    source_template: ClassVar[str] = FishComplete.source_template.replace('split ","', 'split -m 1 ","')


add_completion_class(ColonsInBash)

SHELLS: dict[str, type[ShellComplete]] = {"bash": ColonsInBash, "zsh": ZshComplete, "fish": CommasInFish}


def completion_of(shell: str, command: click.Command) -> ShellComplete:
    """What completes the command line of `remat` in a shell."""
    return SHELLS[shell](command, {}, "remat", VARIABLE)


@click.command()
@click.argument("shell", type=click.Choice([*SHELLS]))
@click.pass_context
def completion(ctx: click.Context, shell: Any) -> None:
    """Print the script by which a shell completes commands, options, policies and targets.

    \b
    bash, in ~/.bashrc:   eval "$(remat completion bash)"
    zsh, in ~/.zshrc:     eval "$(remat completion zsh)"
    fish:                 remat completion fish > ~/.config/fish/completions/remat.fish
    """
    click.echo(completion_of(shell, ctx.find_root().command).source())
