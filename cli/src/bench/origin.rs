//! Where the records of a benchmark come from.

use std::net::Ipv4Addr;

use heliostat_core::config::{MirrorConfig, ThrottledPartitions};
use heliostat_core::select::TopicSelector;
use heliostat_io::control::JobConfig;
use heliostat_io::path_emulator::End;
use heliostat_io::source_client::HostPort;

use super::args::{Append, BenchArgs};
use super::path::Path;
use super::place::Place;
use super::source::{SourceArgs, SourceProcess};
use super::stop::Stop;
use super::{STOP_WITHIN, TOPIC};
use crate::failure::Failure;
use crate::output::size;

/// What is compared: settings of the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) append: Append,
    pub(super) fetch_bytes: u32,
}

/// A source, and how a mirror of it is set up.
#[derive(Debug)]
pub(super) struct Origin {
    /// Held while it is copied.
    _embedded: Option<SourceProcess>,
    bootstrap: Vec<HostPort>,
    mirror: MirrorConfig,
    selector: TopicSelector,
    /// For the report.
    pub(super) text: String,
    /// What a copy may hold; `None` where the source holds no more than that.
    pub(super) copy_bytes: Option<u64>,
}

impl Origin {
    /// Starts the embedded source, or takes the settings of the real one. `None`: Ctrl-C came
    /// first.
    pub(super) fn open(
        args: &BenchArgs,
        place: &Place,
        path: Option<&Path>,
        stop: &Stop,
    ) -> Result<Option<Self>, Failure> {
        let opened = if args.is_of_a_cluster() {
            Some(cluster(args, place)?)
        } else {
            embedded(args, place, path, stop)?
        };
        Ok(opened.map(|mut origin| {
            if args.throttle.is_some() {
                origin.mirror.throttled_rate = args.throttle;
                origin.mirror.throttled = ThrottledPartitions::All;
            }
            origin
        }))
    }

    /// Each with each of all that were named; what nobody named is as configured.
    pub(super) fn variants(&self, args: &BenchArgs) -> Vec<Variant> {
        let own = (Append::of(self.mirror.append_direct), self.mirror.fetch.partition_max_bytes);
        let appends = if args.append.is_empty() { vec![own.0] } else { args.append.clone() };
        let fetches =
            if args.fetch_bytes.is_empty() { vec![own.1] } else { args.fetch_bytes.clone() };
        let with =
            |&append| fetches.iter().map(move |&fetch_bytes| Variant { append, fetch_bytes });
        appends.iter().flat_map(with).collect()
    }

    fn mirror(&self, variant: Variant) -> MirrorConfig {
        let mut mirror = self.mirror.clone();
        mirror.append_direct = variant.append.direct();
        mirror.fetch.partition_max_bytes = variant.fetch_bytes;
        mirror.fetch.response_max_bytes = mirror.fetch.response_max_bytes.max(variant.fetch_bytes);
        mirror
    }

    pub(super) fn job(&self, args: &BenchArgs, place: &Place, variant: Variant) -> JobConfig {
        JobConfig {
            log_dir: place.copy(),
            mirror: self.mirror(variant),
            bootstrap: self.bootstrap.clone(),
            selector: self.selector.clone(),
            shards: args.shards().into(),
            // A real cluster goes on; the embedded source holds all that it ever will.
            follow: args.forever && args.is_of_a_cluster(),
            stop_within: STOP_WITHIN,
        }
    }
}

fn cluster(args: &BenchArgs, place: &Place) -> Result<Origin, Failure> {
    let settings = args.source.load()?.required()?;
    let topics = args.topics.as_deref().unwrap_or_default();
    let selector = TopicSelector::new(topics, &args.exclude)
        .map_err(|error| Failure::from_error("--topics, --exclude", error))?;
    let most = place.room_for(args.bytes(), 1, settings.mirror.free_min_bytes, false)?;
    let servers: Vec<_> = settings.bootstrap.iter().map(ToString::to_string).collect();
    Ok(Origin {
        _embedded: None,
        text: format!("cluster at {}, topics {topics}", servers.join(",")),
        bootstrap: settings.bootstrap,
        mirror: settings.mirror,
        selector,
        copy_bytes: Some(most),
    })
}

fn embedded(
    args: &BenchArgs,
    place: &Place,
    path: Option<&Path>,
    stop: &Stop,
) -> Result<Option<Origin>, Failure> {
    let mirror = MirrorConfig::default();
    place.room_for(args.bytes(), 2, mirror.free_min_bytes, true)?;
    let far = path.map(|path| &path.emulator);
    let spec = SourceArgs {
        dir: place.source(),
        bytes: args.bytes(),
        partitions: args.partitions,
        batch_bytes: usize::try_from(args.batch_bytes).unwrap_or(usize::MAX),
        send_buffer: args.source_send_buffer,
        listen: far.map_or(Ipv4Addr::LOCALHOST, |far| far.address(End::Far)),
        netns: far.map(|far| far.namespace(End::Far)),
    };
    let Some(source) = SourceProcess::start(&spec, stop)? else { return Ok(None) };
    let over = path.map_or_else(|| "over loopback".to_owned(), Path::text);
    Ok(Some(Origin {
        bootstrap: vec![source.address.clone()],
        _embedded: Some(source),
        mirror,
        selector: TopicSelector::new(TOPIC, "")
            .map_err(|error| Failure::from_error("bench", error))?,
        text: format!(
            "embedded, {} in {} partitions, batches of {}, {over}",
            size(args.bytes()),
            args.partitions,
            size(u64::from(args.batch_bytes)),
        ),
        copy_bytes: None,
    }))
}
