//! Words of `docker compose` that are no command here, and what to use instead.
//!
//! Owns: that list. Invariant: none of the words is a command of ours.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Words and what to use instead.
const WORDS: &[(&str, &str)] = &[
    ("attach", "`longshore logs -f SERVICE` shows its output, `longshore exec -it SERVICE sh` opens a shell in it"),
    ("build", "`longshore up --build` builds the images of services with `build` and runs them"),
    ("commit", "build an image with the change in it, and name it in the manifest"),
    ("convert", "`longshore config` prints the resolved manifest"),
    ("create", "`longshore apply` creates and starts what the manifest describes; `longshore plan` only shows it"),
    ("export", "`longshore exec SERVICE tar -c PATH > archive.tar` copies files out of a replica"),
    ("kill", "`longshore stop` stops a deployment, `longshore scale SERVICE=0` one service"),
    ("ls", "`longshore status` lists the deployments"),
    ("push", "`docker push IMAGE`; nodes pull it from the registry"),
    ("stats", "`longshore node inspect NODE` shows the load of a node; `docker stats` there that of its containers"),
    ("top", "`longshore exec SERVICE ps` lists the processes of a replica"),
    ("unpause", "`longshore resume` continues a paused rollout, `longshore start` a stopped deployment"),
    ("wait", "`--wait` of `apply`, `scale`, `restart` and `start` waits until the change is complete"),
    ("watch", "`longshore status -w` follows the state; `longshore up --build` takes changed files over"),
];

/// The message for an unknown command that is a word of Compose.
pub(crate) fn instead(error: &Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (_, instead) = WORDS.iter().find(|(known, _)| known == word)?;
    Some(format!("error: there is no command `{word}`\n\nhint: {instead}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    #[test]
    fn no_word_of_the_list_is_a_command() {
        let command = Cli::command();
        for (word, _) in WORDS {
            let ours = command.get_subcommands().any(|it| it.get_name() == *word && !it.is_hide_set());
            assert!(!ours, "{word}");
            let error = Cli::command().try_get_matches_from(["longshore", word, "shop"]).unwrap_err();
            assert!(instead(&error).is_some_and(|text| text.contains("hint: ")), "{word}");
        }
    }
}
