use super::*;
use crate::metadata::image::METADATA_VERSION;
use crate::metadata::record::BrokerEndpoint;

fn broker(node: i32, epoch: i64) -> BrokerRegistration {
    BrokerRegistration {
        node: BrokerId(node),
        incarnation: Uuid::from_u128(1),
        epoch,
        end_points: vec![BrokerEndpoint {
            name: "A".into(),
            host: "h".into(),
            ..Default::default()
        }],
        features: vec![],
        rack: None,
        log_dirs: vec![Uuid::from_u128(2)],
    }
}

#[test]
fn a_new_cluster_gets_its_metadata_version_once() {
    let empty = MetadataImage::default();
    let decision = bootstrap(&empty, 25).unwrap();
    let after = with(&empty, &decision.records);
    assert_eq!(after.feature(METADATA_VERSION), 25);
    assert_eq!(bootstrap(&after, 26).unwrap().records, []);
    let below = bootstrap(&empty, METADATA_VERSION_MIN - 1);
    assert_eq!(refused(below), code::FEATURE_UPDATE_FAILED);
}

#[test]
fn the_host_registers_with_each_start() {
    let decision = register_broker(&image(), &broker(1, 6)).unwrap();
    assert_eq!(decision.answer, 6);
    let after = with(&image(), &decision.records);
    let registration = &after.broker(NODE).unwrap().registration;
    assert_eq!((registration.broker_epoch, registration.fenced), (6, false));
    assert!(register_broker(&MetadataImage::default(), &broker(3, 0)).is_ok());
}

#[test]
fn another_node_is_not_registered() {
    for wrong in
        [broker(2, 6), broker(1, 5), BrokerRegistration { end_points: vec![], ..broker(1, 6) }]
    {
        assert_eq!(refused(register_broker(&image(), &wrong)), code::INVALID_REGISTRATION);
    }
    let gone = crate::metadata::record::UnregisterBrokerRecord { broker_id: 1, broker_epoch: 5 };
    let left = with(&image(), &[gone.into()]);
    // The partitions tell whose metadata it is.
    insta::assert_snapshot!(
        register_broker(&left, &broker(2, 6)).unwrap_err(),
        @"INVALID_REGISTRATION (119): node.id is 2, but this metadata is that of node 1; set node.id=1, or use log dirs of this node"
    );
    assert!(register_broker(&left, &broker(1, 6)).is_ok());
}

#[test]
fn mirrors_are_turned_on_and_off() {
    let update = |image: &MetadataImage, name: &str, level, allow_downgrade| {
        update_feature(image, &FeatureUpdate { name: name.into(), level, allow_downgrade })
    };
    let up = update(&off(), MIRROR_VERSION, 1, false).unwrap();
    assert_eq!(with(&off(), &up.records).feature(MIRROR_VERSION), 1);
    assert_eq!(update(&image(), MIRROR_VERSION, 1, false).unwrap().records, []);
    for level in [2, -1] {
        let result = update(&image(), MIRROR_VERSION, level, true);
        assert_eq!(refused(result), code::INVALID_UPDATE_VERSION);
    }
    let result = update(&image(), MIRROR_VERSION, 0, false);
    assert_eq!(refused(result), code::INVALID_UPDATE_VERSION);
    let result = update(&image(), MIRROR_VERSION, 0, true);
    assert_eq!(refused(result), code::FEATURE_UPDATE_FAILED, "there are mirrors");
    let on = FeatureLevelRecord { name: MIRROR_VERSION.into(), feature_level: 1 };
    let on = with(&MetadataImage::default(), &[on.into()]);
    let down = update(&on, MIRROR_VERSION, 0, true).unwrap();
    assert_eq!(with(&on, &down.records), MetadataImage::default());
    for name in [METADATA_VERSION, "other"] {
        assert_eq!(refused(update(&image(), name, 1, true)), code::FEATURE_UPDATE_FAILED);
    }
}
