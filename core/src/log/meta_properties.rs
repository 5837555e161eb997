//! `meta.properties`: whose log dir it is.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::format_error::{FileKind, FormatError, excerpt};
use super::properties;
use crate::types::{BrokerId, TopicId};

const FILE: FileKind = FileKind::MetaProperties;
const VERSION_KEY: &str = "version";
const CLUSTER_KEY: &str = "cluster.id";
const NODE_KEY: &str = "node.id";
/// Name of the node ID in version 0, which brokers with ZooKeeper write.
const BROKER_KEY: &str = "broker.id";
const DIRECTORY_KEY: &str = "directory.id";

/// Owner of a log dir. Keys that nobody here knows are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// 1; 0 is read as well.
    pub version: u8,
    /// Always there in version 1.
    pub cluster_id: Option<String>,
    /// Always there in version 1.
    pub node_id: Option<BrokerId>,
    /// Identity of the log dir among those of its node; brokers before 3.7 have none.
    pub directory_id: Option<Uuid>,
    /// Everything else.
    pub other: BTreeMap<String, String>,
}

impl MetaProperties {
    /// Version 1.
    pub fn new(cluster_id: String, node_id: BrokerId, directory_id: Uuid) -> Self {
        Self {
            version: 1,
            cluster_id: Some(cluster_id),
            node_id: Some(node_id),
            directory_id: Some(directory_id),
            other: BTreeMap::new(),
        }
    }

    /// Contents of the file. Without the date that Java puts into a comment.
    pub fn encode(&self) -> String {
        let mut all = self.other.clone();
        all.insert(VERSION_KEY.to_owned(), self.version.to_string());
        if let Some(cluster_id) = &self.cluster_id {
            all.insert(CLUSTER_KEY.to_owned(), cluster_id.clone());
        }
        if let Some(node_id) = self.node_id {
            all.insert(self.node_key().to_owned(), node_id.to_string());
        }
        if let Some(directory_id) = self.directory_id {
            // A directory ID is spelled as a topic ID is.
            all.insert(DIRECTORY_KEY.to_owned(), TopicId(directory_id).to_string());
        }
        all.iter().map(|(key, value)| properties::format_line(key, value) + "\n").collect()
    }

    fn node_key(&self) -> &'static str {
        if self.version == 0 { BROKER_KEY } else { NODE_KEY }
    }

    /// Reads the file. Of a key that is there twice the later value holds.
    ///
    /// # Errors
    ///
    /// [`FormatError`] for an unknown version, a value that is none, or a missing key.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut all: BTreeMap<_, _> = properties::parse(FILE, bytes)?.into_iter().collect();
        let version = match all.remove(VERSION_KEY).as_deref() {
            None | Some("0") => 0,
            Some("1") => 1,
            Some(got) => {
                let got = got.parse().map_err(|_| wrong("`version` to be 0 or 1", got))?;
                return Err(FormatError::Version { file: FILE, got, known: 1 });
            }
        };
        let node_key = if version == 0 { BROKER_KEY } else { NODE_KEY };
        let node_id = all
            .remove(node_key)
            .map(|got| {
                got.parse().map(BrokerId).map_err(|_| wrong("the node ID to be a number", &got))
            })
            .transpose()?;
        let directory_id = all
            .remove(DIRECTORY_KEY)
            .map(|got| {
                got.parse::<TopicId>().map_err(|_| wrong("`directory.id` to be an ID", &got))
            })
            .transpose()?;
        let it = Self {
            version,
            cluster_id: all.remove(CLUSTER_KEY),
            node_id,
            directory_id: directory_id.map(|id| id.0),
            other: all,
        };
        let needed = [(it.cluster_id.is_none(), CLUSTER_KEY), (it.node_id.is_none(), NODE_KEY)];
        match needed.into_iter().find(|(is_missing, _)| version == 1 && *is_missing) {
            Some((_, key)) => Err(FormatError::MissingKey { file: FILE, key }),
            None => Ok(it),
        }
    }
}

fn wrong(expected: &'static str, got: &str) -> FormatError {
    FormatError::Value { file: FILE, expected, got: excerpt(got) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_file_is_one_that_kafka_reads() {
        let it = MetaProperties::new("Abc:1".to_owned(), BrokerId(3), Uuid::from_u128(1));
        assert_eq!(
            it.encode(),
            "cluster.id=Abc\\:1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=3\nversion=1\n"
        );
        assert_eq!(MetaProperties::decode(it.encode().as_bytes()), Ok(it));
    }

    #[test]
    fn a_brokers_file_is_read_and_unknown_keys_stay() {
        let bytes =
            b"#\n#Sun Nov 29 20:53:02 UTC 2026\nnode.id=1\nversion=1\ncluster.id=x\nnew=y\n";
        let it = MetaProperties::decode(bytes).unwrap();
        assert_eq!((it.node_id, it.directory_id), (Some(BrokerId(1)), None));
        assert_eq!(it.encode(), "cluster.id=x\nnew=y\nnode.id=1\nversion=1\n");
        let old = MetaProperties::decode(b"version=0\nbroker.id=5\n").unwrap();
        assert_eq!((old.version, old.node_id), (0, Some(BrokerId(5))));
        assert_eq!(old.encode(), "broker.id=5\nversion=0\n");
        assert_eq!(MetaProperties::decode(b"").unwrap().version, 0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |text: &str, message: &str| {
            let error = MetaProperties::decode(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), format!("meta.properties: {message}"));
        };
        check("version=2", "format version 2, known is 1");
        check("version=x", "want `version` to be 0 or 1, got \"x\"");
        check("version=1\nnode.id=1", "key cluster.id is missing");
        check("version=1\ncluster.id=1", "key node.id is missing");
        check("version=1\nnode.id=a", "want the node ID to be a number, got \"a\"");
        check("directory.id=a", "want `directory.id` to be an ID, got \"a\"");
    }

    proptest! {
        #[test]
        fn files_round_trip(
            cluster in "\\PC{0,20}",
            node: i32,
            directory: u128,
            other in prop::collection::btree_map("x[ -~]{0,8}", "\\PC{0,8}", 0..4),
        ) {
            let directory = Uuid::from_u128(directory);
            let it = MetaProperties { other, ..MetaProperties::new(cluster, BrokerId(node), directory) };
            prop_assert_eq!(MetaProperties::decode(it.encode().as_bytes()), Ok(it));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "(version|node.id|=|1|0|\n|x){0,12}") {
            let _ = MetaProperties::decode(&bytes);
            let _ = MetaProperties::decode(text.as_bytes());
        }
    }
}
