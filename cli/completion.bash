# Completion of ggrun's commands, options and files for bash. The words come from the program itself.
_ggrun()
{
    local cur=${COMP_WORDS[COMP_CWORD]} cmd=run
    local commands="run info tokenize logits bench plan help"
    if [[ $COMP_CWORD -gt 1 && " $commands " == *" ${COMP_WORDS[1]} "* ]]; then
        cmd=${COMP_WORDS[1]}
    fi
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" help "$cmd" --words 2>/dev/null)" -- "$cur"))
    elif [[ $COMP_CWORD -eq 1 || $cmd == help ]]; then
        COMPREPLY=($(compgen -W "$commands" -- "$cur"))
    else
        COMPREPLY=()
    fi
}
complete -o default -F _ggrun ggrun
