//! What a mirroring host and the job of one of its mirrors say to each other.
//!
//! A job by itself follows whatever its patterns select. One that is steered follows what it is
//! told to, and tells what happens to it; the mirror coordinator decides what comes of that. Both
//! run on the control thread. Neither queue needs a limit of its own: each partition has at most
//! one order that is not obeyed yet, and tells of each order's outcome once.

use std::collections::BTreeSet;
use std::sync::Arc;

use heliostat_core::coordinator::LastMirrored;
use heliostat_core::protocol::Metadata;
use heliostat_core::types::{LeaderEpoch, TopicId, TopicPartition};
use tokio::sync::{mpsc, oneshot};

use super::status::PartitionStatus;

/// From the host.
#[derive(Debug)]
pub enum Order {
    /// These topics are the mirror's: their leaders are watched. Before that nothing is done.
    Watch {
        /// The source's cluster ID. While another cluster answers, nothing is asked, opened or
        /// cut.
        cluster: Option<Arc<str>>,
        /// All of them.
        topics: Vec<WatchedTopic>,
    },
    /// Bring the log back to what it has in common with the source, and leave it at rest: its end
    /// is cut to where the last mirrored epoch ends here, at most to the last mirrored offset.
    /// Without a last position nothing is known to be common, and it begins anew.
    Align {
        /// The partition.
        at: TopicPartition,
        /// As the source, or what was stored of an earlier mirror's stop, knows it.
        last: Option<LastMirrored>,
    },
    /// Follow the source from the end of the log on.
    Follow {
        /// The partition.
        at: TopicPartition,
        /// The destination's leader epoch: nothing above it is appended.
        local_epoch: LeaderEpoch,
        /// It was aligned just now: the first cut that the source asks for needs no permission.
        may_cut: bool,
        /// `mirror.support.unclean.leader.election` of the topic: no cut needs one.
        unclean: bool,
    },
    /// The destination's leader epoch has risen.
    SetLocalEpoch {
        /// The partition.
        at: TopicPartition,
        /// The new epoch.
        epoch: LeaderEpoch,
    },
    /// Follow it no more; its log is closed as a clean stop would close it, and left alone.
    Release {
        /// The partition.
        at: TopicPartition,
    },
    /// How partitions stand.
    Describe {
        /// Of these topics; empty for all.
        topics: BTreeSet<String>,
        /// Where the answer goes.
        reply: oneshot::Sender<Vec<PartitionStatus>>,
    },
}

/// A topic of the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedTopic {
    /// Its name, here and there.
    pub name: Arc<str>,
    /// Its ID at the destination, which the files carry.
    pub local_id: TopicId,
    /// Its ID at the source; all zeros if the source had none when it was made. Another one is
    /// another topic.
    pub source_id: TopicId,
}

/// From the job.
#[derive(Debug)]
pub enum Happening {
    /// The source has told of its brokers and topics.
    Metadata(Box<Metadata>),
    /// What a partition's order has led to, or what has become of it since.
    Of(TopicPartition, Outcome),
}

/// What has happened to one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// [`Order::Align`] is carried out, durably.
    Aligned,
    /// [`Order::Release`] is carried out.
    Released,
    /// It follows, and its source has answered.
    Follows,
    /// A batch's epoch is above the destination's. It is followed no more; its log is closed.
    EpochFenced(LeaderEpoch),
    /// It is neither followed nor aligned any more; its log is closed.
    Failed {
        /// The thing, the cause and the remedy.
        reason: Arc<str>,
        /// Whether trying again may help.
        retryable: bool,
    },
}

/// The job's ends.
#[derive(Debug)]
pub struct Steering {
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    pub(super) happenings: mpsc::UnboundedSender<Happening>,
}

/// The host's ends.
#[derive(Debug)]
pub struct Helm {
    /// Obeyed in this order.
    pub orders: mpsc::UnboundedSender<Order>,
    /// As they come.
    pub happenings: mpsc::UnboundedReceiver<Happening>,
}

/// Both ends.
pub fn steering() -> (Helm, Steering) {
    let (order_sender, orders) = mpsc::unbounded_channel();
    let (happening_sender, happenings) = mpsc::unbounded_channel();
    let helm = Helm { orders: order_sender, happenings };
    (helm, Steering { orders, happenings: happening_sender })
}
