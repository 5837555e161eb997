//! The client against scripted brokers: threads that answer by a list of closures.

use std::net::TcpListener;
use std::time::Duration;

use heliostat_core::fetcher::BackoffPolicy;
use heliostat_core::protocol::{EpochEndQuery, ErrorCode, OffsetAt, OffsetQuery};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TopicPartition};
use kafka_protocol::messages::list_offsets_response as listed;
use kafka_protocol::messages::metadata_response as meta;
use kafka_protocol::messages::offset_for_leader_epoch_response as ended;
use kafka_protocol::messages::{
    ListOffsetsResponse, MetadataResponse, OffsetForLeaderEpochResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::runtime::{Builder, Runtime};

use super::fake::{Asked, Broker, Peer, Script, closed_port, frame, modern, versions};
use super::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn client(bootstrap: &[&HostPort]) -> SourceClient {
    let mut config = ClientConfig::new(bootstrap.iter().map(|at| (*at).clone()).collect());
    config.request_timeout = Duration::from_secs(5);
    config.reconnect = BackoffPolicy::new(Duration::from_nanos(1), Duration::from_nanos(1));
    SourceClient::new(config)
}

/// The one sentence that the operator sees.
fn failure(at: &HostPort, request_timeout: Duration) -> String {
    let mut config = ClientConfig::new(vec![at.clone()]);
    config.request_timeout = request_timeout;
    let error = runtime().block_on(SourceClient::new(config).metadata(None)).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[track_caller]
fn check_bad_peer(script: impl FnOnce(&mut Peer) + Send + 'static, want: &str) {
    let broker = Broker::one(script);
    let text = failure(&broker.at, Duration::from_secs(5));
    let prefix = format!("no broker of the source answers: {}: ", broker.at);
    assert_eq!(text.strip_prefix(&prefix).unwrap_or(&text), want);
    broker.finish();
}

#[test]
fn hosts_that_cannot_be_reached_are_told_apart() {
    let unknown = "no-such-host.invalid:9092".parse().unwrap();
    let text = failure(&unknown, Duration::from_secs(5));
    assert!(text.contains("no-such-host.invalid:9092: unknown host ("), "{text}");
    let closed = closed_port();
    let text = failure(&closed, Duration::from_secs(5));
    assert!(text.contains(&format!("{closed}: connection refused: nothing listens")), "{text}");
}

#[test]
fn ports_that_speak_something_else_are_recognised() {
    check_bad_peer(
        |peer| {
            peer.read();
            peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        },
        "speaks HTTP, not Kafka; name the port of a Kafka listener (usually 9092)",
    );
    check_bad_peer(
        |peer| {
            peer.read();
            peer.write(&[0x15, 3, 3, 0, 2, 2, 70]);
        },
        "speaks TLS; name a PLAINTEXT listener of the broker",
    );
    check_bad_peer(
        |peer| {
            peer.read();
        },
        "closed the connection without an answer; if the port is an SSL or SASL listener, name a \
         PLAINTEXT one",
    );
    check_bad_peer(
        |peer| {
            peer.read();
            peer.write(b"SSH-2.0-OpenSSH_9.6\r\n");
        },
        "broke the Kafka protocol in its answer to ApiVersions: message of 1397966893 bytes: \
         between 4 and 104857600 are accepted; is this a Kafka broker?",
    );
}

#[test]
fn a_broker_that_wants_sasl_closes_after_the_negotiation() {
    check_bad_peer(
        |peer| {
            peer.negotiate();
            peer.read();
        },
        "closed the connection during Metadata, 0 bytes into the response; if the listener wants \
         SASL, name a PLAINTEXT one, else see the broker's log",
    );
}

#[test]
fn a_hang_says_how_far_the_answer_came() {
    let hang = |bytes: usize| {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let broker = Broker::one(move |peer| {
            let asked = peer.read().unwrap();
            peer.write(&frame(asked, &modern())[..bytes]);
            // Holds the connection open until the client has given up.
            let _ = released.recv();
        });
        let text = failure(&broker.at, Duration::from_millis(200));
        drop(release);
        broker.finish();
        text
    };
    assert!(hang(0).contains("no answer to ApiVersions within 200 ms"), "{}", hang(0));
    let text = hang(3);
    assert!(text.contains("response to ApiVersions (3 of 4 bytes within 200 ms)"), "{text}");
    let whole = frame(Asked { api: 18, version: 4, correlation: 0 }, &modern()).len();
    for bytes in [4, 20] {
        let text = hang(bytes);
        assert!(text.contains(&format!("({bytes} of {whole} bytes within 200 ms)")), "{text}");
    }
}

#[test]
fn answers_that_break_the_protocol_are_refused() {
    check_bad_peer(
        |peer| {
            let asked = peer.read().unwrap();
            peer.answer(Asked { correlation: 77, ..asked }, &modern());
        },
        "answered request 77 where 0 was asked; the connection is out of step",
    );
    check_bad_peer(
        |peer| {
            peer.negotiate();
            let asked = peer.read().unwrap();
            let mut bytes = frame(asked, &MetadataResponse::default()).to_vec();
            // The count of brokers, behind size, correlation ID, tags and throttle time.
            bytes[13] = 0x7f;
            peer.write(&bytes);
        },
        "broke the Kafka protocol in its answer to Metadata: brokers needs 1134 bytes, 9 are \
         left; is this a Kafka broker?",
    );
}

#[test]
fn a_broker_that_is_too_old_is_named_so() {
    check_bad_peer(
        |peer| {
            let asked = peer.read().unwrap();
            peer.answer(asked, &versions(&[(3, 0, 2), (18, 0, 4)]));
        },
        "the broker offers Metadata versions 0 to 2, this release speaks 4 to 13; sources of \
         Kafka 2.1 and newer are supported",
    );
}

/// Metadata of brokers 1, 2, … at `brokers`, and partition n of topic `t` led by broker n + 1.
fn metadata(brokers: &[HostPort]) -> MetadataResponse {
    let node = |index: usize| i32::try_from(index).unwrap() + 1;
    let listed = brokers.iter().enumerate().map(|(index, at)| {
        meta::MetadataResponseBroker::default()
            .with_node_id(node(index).into())
            .with_host(StrBytes::from_string(at.host.to_string()))
            .with_port(at.port.into())
    });
    let partitions = brokers.iter().enumerate().map(|(index, _)| {
        meta::MetadataResponsePartition::default()
            .with_partition_index(node(index) - 1)
            .with_leader_id(node(index).into())
            .with_leader_epoch(5)
    });
    let topic = meta::MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str("t"))))
        .with_partitions(partitions.collect());
    MetadataResponse::default()
        .with_cluster_id(Some(StrBytes::from_static_str("cluster")))
        .with_brokers(listed.collect())
        .with_topics(vec![topic])
}

#[test]
fn a_broker_of_an_older_release_gets_the_oldest_negotiation() {
    let broker = Broker::start(|at| {
        let answer = metadata(std::slice::from_ref(at));
        vec![Box::new(move |peer: &mut Peer| {
            let asked = peer.read().unwrap();
            assert_eq!(asked.version, 4);
            let refusal = versions(&[]).with_error_code(ErrorCode::UNSUPPORTED_VERSION.0);
            peer.answer(Asked { version: 0, ..asked }, &refusal);
            let again = peer.read().unwrap();
            assert_eq!(again.version, 0);
            // What Kafka 2.1 offers.
            peer.answer(again, &versions(&[(1, 0, 10), (2, 0, 4), (3, 0, 7), (18, 0, 2)]));
            let asked = peer.read().unwrap();
            assert_eq!((asked.api, asked.version), (3, 7));
            peer.answer(asked, &answer);
        })]
    });
    let got = runtime().block_on(client(&[&broker.at]).metadata(None)).unwrap();
    assert_eq!(got.cluster_id.as_deref(), Some("cluster"));
    // Epochs of so old a version cannot be relied on.
    assert_eq!(got.topics[0].partitions[0].leader_epoch, LeaderEpoch::NONE);
    broker.finish();
}

fn serve_metadata(answer: MetadataResponse) -> Script {
    Box::new(move |peer| {
        peer.negotiate();
        let asked = peer.read().unwrap();
        peer.answer(asked, &answer);
    })
}

#[test]
fn bootstrap_goes_on_to_the_next_and_begins_again_when_all_fail() {
    let gone = closed_port();
    // The first answer names a broker that does not exist: the bootstrap is asked again.
    let answer = metadata(std::slice::from_ref(&gone));
    let broker = Broker::start(|_| vec![serve_metadata(answer.clone()), serve_metadata(answer)]);
    let refused = closed_port();
    let mut client = client(&[&refused, &broker.at]);
    let runtime = runtime();
    runtime.block_on(async {
        client.metadata(None).await.unwrap();
        assert_eq!(client.brokers().get(&BrokerId(1)), Some(&gone));
        // The connection to the bootstrap server is gone by now; a new one is made.
        client.metadata(Some(&[])).await.unwrap();
    });
    broker.finish();
}

#[test]
fn a_failing_broker_is_left_alone_for_its_back_off() {
    let refused = closed_port();
    let mut config = ClientConfig::new(vec![refused.clone()]);
    config.reconnect = BackoffPolicy::new(Duration::from_secs(3_600), Duration::from_secs(3_600));
    let mut client = SourceClient::new(config);
    runtime().block_on(async {
        let first = client.metadata(None).await.unwrap_err();
        // Somebody listens now, and must not be asked: the listener never answers.
        let _listener = TcpListener::bind(("127.0.0.1", refused.port)).unwrap();
        assert_eq!(client.metadata(None).await.unwrap_err(), first);
    });
}

fn offset_query(index: i32) -> OffsetQuery {
    OffsetQuery {
        partition: TopicPartition::new("t", index),
        current_leader_epoch: LeaderEpoch(5),
        at: OffsetAt::Latest,
    }
}

fn listed(index: i32, offset: i64) -> ListOffsetsResponse {
    let partition = listed::ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_offset(offset);
    let topic = listed::ListOffsetsTopicResponse::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition]);
    ListOffsetsResponse::default().with_topics(vec![topic])
}

fn epoch_end(index: i32, offset: i64) -> OffsetForLeaderEpochResponse {
    let partition = ended::EpochEndOffset::default()
        .with_partition(index)
        .with_leader_epoch(4)
        .with_end_offset(offset);
    let topic = ended::OffsetForLeaderTopicResult::default()
        .with_topic(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition]);
    OffsetForLeaderEpochResponse::default().with_topics(vec![topic])
}

#[test]
fn leaders_are_asked_each_for_its_own_and_fail_each_for_itself() {
    let second = Broker::one(|peer| {
        peer.negotiate();
        let asked = peer.read().unwrap();
        assert_eq!(asked.api, 2);
        peer.answer(asked, &listed(1, 200));
        let asked = peer.read().unwrap();
        assert_eq!(asked.api, 23);
        peer.answer(asked, &epoch_end(1, 150));
    });
    let second_at = second.at.clone();
    let gone = closed_port();
    let gone_at = gone.clone();
    let first = Broker::start(|at| {
        let answer = metadata(&[at.clone(), second_at, gone_at]);
        vec![Box::new(move |peer: &mut Peer| {
            peer.negotiate();
            let asked = peer.read().unwrap();
            peer.answer(asked, &answer);
            let asked = peer.read().unwrap();
            peer.answer(asked, &listed(0, 100));
        })]
    });
    let mut client = client(&[&first.at]);
    runtime().block_on(async {
        client.metadata(None).await.unwrap();
        let queries = (0..4).map(offset_query).collect();
        let mut got = client.list_offsets(queries).await;
        got.answers.sort_by_key(|answer| answer.partition.partition);
        let offsets: Vec<_> = got.answers.iter().map(|answer| answer.offset).collect();
        assert_eq!(offsets, [Offset(100), Offset(200)]);
        got.unanswered.sort_by_key(|one| one.partition.partition);
        assert_eq!(got.unanswered.len(), 2);
        assert!(got.unanswered[0].error.to_string().starts_with(&format!("{gone}: ")));
        assert_eq!(*got.unanswered[1].error, SourceError::NoLeader);

        let query = EpochEndQuery {
            partition: TopicPartition::new("t", 1),
            current_leader_epoch: LeaderEpoch(5),
            leader_epoch: LeaderEpoch(4),
        };
        let got = client.epoch_ends(vec![query]).await;
        assert_eq!(got.answers[0].end_offset, Offset(150));
    });
    first.finish();
    second.finish();
}
