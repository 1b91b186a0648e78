//! Root volumes by weight, within what EBS allows.

use proptest::prelude::*;
use spot_aws::fleet::{Launch, Pool, Root, VolumeKind};

use crate::support::{kinds, offer, pool};

/// From, to.
type Range = (u32, u32);

/// GiB; operations a second, and for each GiB.
const fn limits(kind: VolumeKind) -> (Range, Option<(Range, u32)>) {
    match kind {
        VolumeKind::Gp3 => ((1, 65_536), Some(((3_000, 80_000), 500))),
        VolumeKind::Gp2 => ((1, 16_384), None),
        VolumeKind::Io1 => ((4, 16_384), Some(((100, 64_000), 50))),
        VolumeKind::Io2 => ((4, 65_536), Some(((100, 256_000), 1_000))),
    }
}

fn of(kind: VolumeKind, weight: u32, unit_size: u32, unit_iops: Option<u32>) -> (Root, Vec<String>) {
    let mut pool = pool();
    pool.root_volume.kind = kind;
    (pool.root_volume.unit_size, pool.root_volume.unit_iops) = (unit_size, unit_iops);
    pool.offers = vec![offer("m5.large", weight)];
    launched(&pool)
}

fn launched(pool: &Pool) -> (Root, Vec<String>) {
    let mut launch = Launch::of(pool, "/dev/xvda");
    (launch.template.versions.remove(0).machine.root_volume, launch.notes)
}

#[test]
fn a_volume_grows_with_the_weight() {
    let (root, notes) = of(VolumeKind::Gp3, 3, 20, Some(2_000));
    assert_eq!((root.size, root.iops, root.throughput, notes.len()), (60, Some(6_000), None, 0));
    let (root, notes) = of(VolumeKind::Gp3, 3, 20, None);
    assert_eq!((root.size, root.iops, notes.len()), (60, None, 0), "as EBS has them by default");
}

#[test]
fn what_an_offer_says_itself_is_taken() {
    let mut pool = pool();
    pool.root_volume.unit_iops = Some(1_000);
    pool.offers = vec![offer("m5.large", 3)];
    pool.offers[0].root_volume.size = Some(31);
    pool.offers[0].root_volume.iops = Some(4_001);
    pool.offers[0].root_volume.throughput = Some(300);
    let (root, notes) = launched(&pool);
    assert_eq!((root.size, root.iops, root.throughput, notes.len()), (31, Some(4_001), Some(300), 0));
}

#[test]
fn what_is_cut_is_told() {
    let (root, notes) = of(VolumeKind::Gp2, 2, 10_000, None);
    assert_eq!((root.size, root.iops), (16_384, None));
    assert_eq!(notes, ["m5.large: root volume of 16384 GiB in place of 20000: gp2 has 1 to 16384"]);
    let (root, notes) = of(VolumeKind::Gp3, 1, 20, Some(100));
    assert_eq!(root.iops, Some(3_000));
    assert_eq!(notes, ["m5.large: root volume of 3000 IOPS in place of 100: gp3 has 3000 to 10000"]);
    let (root, notes) = of(VolumeKind::Io1, 2, 10, Some(5_000));
    assert_eq!((root.size, root.iops), (20, Some(1_000)), "50 operations for each GiB");
    assert_eq!(notes, ["m5.large: root volume of 1000 IOPS in place of 10000: io1 has 100 to 1000"]);
}

proptest! {
    #[test]
    fn every_volume_is_one_that_ebs_has(
        kind in kinds(),
        weight in prop_oneof![1..20_u32, any::<u32>()],
        unit_size in prop_oneof![0..200_u32, any::<u32>()],
        unit_iops in prop::option::of(prop_oneof![0..5_000_u32, any::<u32>()]),
    ) {
        let (root, notes) = of(kind, weight, unit_size, unit_iops);
        let ((min, max), operations) = limits(kind);
        prop_assert!((min..=max).contains(&root.size));
        let wanted = u64::from(unit_size) * u64::from(weight);
        let is_cut = u64::from(root.size) != wanted;
        prop_assert_eq!(is_cut, wanted < u64::from(min) || wanted > u64::from(max));
        let mut told = usize::from(is_cut);
        match (root.iops, operations.zip(unit_iops)) {
            (None, None) => {}
            (Some(iops), Some((((min, max), per_gib), unit))) => {
                prop_assert!((min..=max).contains(&iops));
                // What EBS gives by itself is had at any size.
                prop_assert!(iops == min || u64::from(iops) <= u64::from(root.size) * u64::from(per_gib));
                told += usize::from(u64::from(iops) != u64::from(unit) * u64::from(weight));
            }
            (iops, asked) => prop_assert!(false, "{iops:?} where {asked:?}"),
        }
        prop_assert_eq!(notes.len(), told, "{:?}", notes);
    }

    #[test]
    fn a_heavier_machine_never_has_a_smaller_volume(kind in kinds(), weight in 1..1_000_u32, unit in 1..1_000_u32) {
        let (lighter, _) = of(kind, weight, unit, Some(unit));
        let (heavier, _) = of(kind, weight + 1, unit, Some(unit));
        prop_assert!(lighter.size <= heavier.size && lighter.iops <= heavier.iops);
    }
}
