//! spot-migrator.
fn main() {}
