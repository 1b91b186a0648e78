//! When the content of a file is one to go by.

/// What is in a file, or why that can't be said.
pub(super) type Content = Result<String, String>;

/// What was seen of a file, or of several together.
#[derive(Debug)]
pub(super) struct Sight<C = Content> {
    last: Option<C>,
    /// What was gone by last.
    taken: Option<C>,
}

impl<C> Default for Sight<C> {
    fn default() -> Self {
        Self { last: None, taken: None }
    }
}

impl<C: Clone + PartialEq> Sight<C> {
    /// The content, if it is to be gone by: it is another one than before, and was the same at the last look, so that
    /// nobody is in the middle of writing it; or somebody asks for it.
    pub(super) fn due(&mut self, content: C, is_asked: bool) -> Option<&C> {
        let is_whole = self.last.as_ref() == Some(&content);
        let is_new = self.taken.as_ref() != Some(&content);
        self.last = Some(content.clone());
        (is_asked || is_whole && is_new).then(|| &*self.taken.insert(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(contents: &[&str]) -> Vec<String> {
        let mut sight = Sight::default();
        let due = contents.iter().filter_map(|text| {
            let content = if text.is_empty() { Err("gone".to_owned()) } else { Ok((*text).to_owned()) };
            sight.due(content, false).map(|content| format!("{content:?}"))
        });
        due.collect()
    }

    #[test]
    fn what_is_half_written_or_gone_for_a_moment_is_not_gone_by() {
        assert_eq!(looks(&["a", "a", "a", "half", "whole", "whole", "whole"]), ["Ok(\"a\")", "Ok(\"whole\")"]);
        assert_eq!(looks(&["a", "a", "", "b", "b"]), ["Ok(\"a\")", "Ok(\"b\")"]);
    }

    #[test]
    fn what_stays_away_is_told_once_and_what_comes_back_is_gone_by_again() {
        let due = looks(&["a", "a", "", "", "", "a", "a", "a"]);
        assert_eq!(due, ["Ok(\"a\")", "Err(\"gone\")", "Ok(\"a\")"]);
    }

    #[test]
    fn whoever_asks_need_not_wait() {
        let mut sight: Sight = Sight::default();
        assert_eq!(sight.due(Ok("a".to_owned()), true), Some(&Ok("a".to_owned())));
        assert_eq!(sight.due(Ok("a".to_owned()), false), None);
        assert_eq!(sight.due(Ok("a".to_owned()), true), Some(&Ok("a".to_owned())));
    }
}
