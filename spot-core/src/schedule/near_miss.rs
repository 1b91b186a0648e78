//! The name that was probably meant.

/// The candidate with the fewest edits, case aside, if there are at most `allowed` of them.
pub(super) fn closest<'c>(typed: &str, candidates: impl Iterator<Item = &'c str>, allowed: usize) -> Option<&'c str> {
    let typed = letters(typed);
    candidates
        .map(|candidate| (candidate, letters(candidate)))
        .filter(|(_, letters)| letters.len().abs_diff(typed.len()) <= allowed)
        .map(|(candidate, letters)| (edits(&typed, &letters), candidate))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

fn letters(text: &str) -> Vec<char> {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Levenshtein's distance, a row at a time.
fn edits(from: &[char], to: &[char]) -> usize {
    let first: Vec<usize> = (0..=to.len()).collect();
    let last = from.iter().zip(1..).fold(first, |above, (letter, deleted)| {
        to.iter().zip(above.windows(2)).fold(vec![deleted], |mut row, (other, cells)| {
            let (replaced, removed) = (cells[0] + usize::from(letter != other), cells[1] + 1);
            let added = row.last().map_or(usize::MAX, |left| left + 1);
            row.push(replaced.min(removed).min(added));
            row
        })
    });
    last.last().copied().unwrap_or_default()
}
