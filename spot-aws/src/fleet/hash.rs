//! Fingerprints of texts.

use sha2::{Digest, Sha256};

/// The SHA-256 of several texts, each told from the next: 64 hexadecimal digits, as many as a client token may have.
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Run_Instance_Idempotency.html>
pub(super) fn hex(texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    let nibbles = digest.finalize().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
