//! Files of text that people write.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::anyhow;

/// The most that a ConfigMap holds: no file that people write is larger.
const MOST: u64 = 1024 * 1024;

/// The text of a file, of which no more is read than people write.
///
/// # Errors
/// When there is no such file, or it is a folder, larger than 1 MiB, or not UTF-8.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(anyhow!("it is a folder"));
    }
    let mut bytes = Vec::new();
    let _read = file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(anyhow!("it is larger than 1 MiB"));
    }
    utf8(bytes)
}

/// What these bytes say.
///
/// # Errors
/// When that is not UTF-8: where, and what would help.
pub(crate) fn utf8(bytes: Vec<u8>) -> anyhow::Result<String> {
    let is_wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    String::from_utf8(bytes).map_err(|error| {
        if is_wide {
            return anyhow!("it is UTF-16, as `>` of PowerShell writes: save it with `| Out-File -Encoding utf8`");
        }
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].split(|byte| *byte == b'\n').count();
        anyhow!("line {line} is not UTF-8: save it as UTF-8 text")
    })
}
