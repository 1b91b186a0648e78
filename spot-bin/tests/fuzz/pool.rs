//! Pool files, of whatever bytes.

use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use spot_bin::config::ConfigError;
use spot_bin::pool::PoolFile;
use tempfile::TempDir;

use crate::is_well_told;
use crate::mutator::{Corpus, config};

static POOLS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("pool"));

/// A folder with the user data that a pool may name.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let own = "#!/bin/sh\nrun --labels=${NODE_LABELS} --taints=${NODE_TAINTS}\n";
    fs::write(folder.path().join("boot.sh"), own).unwrap();
    folder
}

fn read(folder: &TempDir, bytes: &[u8]) -> Result<PoolFile, ConfigError> {
    let path = folder.path().join("pool.yaml");
    fs::write(&path, bytes).unwrap();
    PoolFile::read(&path)
}

#[test]
fn the_corpus_holds_pool_files_and_many_refusals() {
    let folder = folder();
    for bytes in &POOLS.good {
        assert!(read(&folder, bytes).is_ok(), "{:?}", read(&folder, bytes));
    }
    for bytes in &POOLS.refused {
        let text = String::from_utf8_lossy(bytes);
        let error = read(&folder, bytes).expect_err(&text);
        assert!(is_well_told(&error, &text), "{error:?}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_pool_file_is_shown_as_one_that_reads_the_same_or_refused_at_its_places(bytes in POOLS.bytes()) {
        let folder = folder();
        let file = match read(&folder, &bytes) {
            Ok(file) => file,
            Err(error) => {
                prop_assert!(is_well_told(&error, &String::from_utf8_lossy(&bytes)), "{:?}", error);
                return Ok(());
            }
        };
        for shown in [file.to_yaml(), file.to_json().to_string()] {
            let again = read(&folder, shown.as_bytes());
            prop_assert!(again.as_ref().is_ok_and(|again| *again == file), "{:?}\n{}", again, shown);
        }
        let pool = &file.pool;
        prop_assert!(pool.min_capacity <= pool.target_capacity);
        prop_assert!(!pool.subnets.is_empty() && !pool.offers.is_empty() && !file.lease_name().is_empty());
        prop_assert!(pool.offers.iter().all(|offer| offer.weight >= 1 && !offer.instance_type.is_empty()));
        prop_assert!(!file.ready_timeout.is_zero() && !file.drain.timeout.is_zero() && !file.settle_timeout.is_zero());
    }
}
