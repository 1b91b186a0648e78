//! Asking a person before what can't be taken back.

use std::io::{self, IsTerminal as _};

use anyhow::{Context as _, anyhow};
use spot_core::stop::Stop;

use crate::exit::Fault;
use crate::output;

/// Makes sure that it can be had, before anything is asked of anybody. `given` is it in advance.
///
/// # Errors
/// When there is nobody to ask.
pub(super) fn can_be_had(given: bool) -> Result<(), Fault> {
    if given || (io::stdin().is_terminal() && output::is_watched()) {
        return Ok(());
    }
    Err(Fault::usage(anyhow!(
        "there is no terminal on which somebody could be asked: give --yes if it is to be done; nothing was touched"
    )))
}

/// Whether a person agrees.
///
/// # Errors
/// When there is nobody to ask.
pub(super) async fn asked(question: &str, given: bool, stop: &Stop) -> Result<bool, Fault> {
    can_be_had(given)?;
    if given {
        return Ok(true);
    }
    output::ask(&format!("{question} [y/N] "));
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_bytes| answer)
    });
    tokio::select! {
        answer = answer => {
            let answer = answer.context("whoever reads the answer died")?.context("can't read the answer")?;
            Ok(is_yes(&answer))
        }
        () = stop.wait() => Ok(false),
    }
}

/// Nobody agreed: whoever goes on as if it were done would be wrong. `undone` says what was not.
pub(super) fn refused(undone: &str) -> Fault {
    Fault::failed(anyhow!("nobody agreed: {undone}"))
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_agreed_to_is_no_orderly_end() {
        let refused = refused("nothing was touched");
        assert_eq!(refused.exit.code(), 1);
        assert!(refused.error.to_string().contains("nothing was touched"), "{}", refused.error);
    }

    #[test]
    fn only_a_yes_is_one() {
        assert!(["y\n", "YES\n", " yes \r\n"].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yess\n", "no yes\n"].into_iter().any(is_yes));
    }
}
