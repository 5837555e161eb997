//! Target `fetch_stream`: version and limits, size of the pieces, responses.

use heliostat_core::protocol::DecodeError;
use heliostat_core::protocol::fetch_stream::{FetchEvent, FetchLimits, FetchStream};

use crate::fetch_oracle::check_against_oracle;

/// Fetch responses of any version, whole and in pieces: the same events, the same records,
/// the same end. Events come in their order, and what is accepted means the same to
/// another decoder.
///
/// # Panics
/// When the decoder breaks its promises: that is what the fuzzer looks for.
pub fn fetch_stream(input: &[u8]) {
    let Some((&[head, piece], bytes)) = input.split_first_chunk::<2>() else { return };
    let version = 4 + i16::from(head % 16);
    let limits = if head & 0x10 == 0 {
        FetchLimits { frame_bytes_max: 1 << 20, ..FetchLimits::default() }
    } else {
        FetchLimits {
            frame_bytes_max: 1 << 10,
            topics_max: 2,
            partitions_max: 3,
            aborted_max: 2,
            name_bytes_max: 8,
            tagged_bytes_max: 32,
        }
    };
    let whole = Decoded::of(version, limits, bytes, usize::MAX);
    let pieces = Decoded::of(version, limits, bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces, "how bytes are cut changes what they mean");
    whole.check_order();
    for (response, frame) in whole.responses() {
        check_against_oracle(version, response, bytes, frame);
    }
}

/// What came out of the decoder, with positions in the input.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    /// An event, and where the decoder stood then.
    Event(FetchEvent, usize),
    /// Records from the first position to the second.
    Records(usize, usize),
}

#[derive(Debug, PartialEq)]
struct Decoded {
    seen: Vec<Seen>,
    error: Option<DecodeError>,
}

impl Decoded {
    fn of(version: i16, limits: FetchLimits, bytes: &[u8], piece: usize) -> Self {
        let mut stream = FetchStream::new(version, limits);
        let mut seen = Vec::new();
        let mut at = 0;
        for part in bytes.chunks(piece.min(bytes.len().max(1))) {
            let end = at + part.len();
            loop {
                let (due, frame) = (stream.remaining_records(), stream.frame_remaining());
                let rest = bytes.get(at..end).unwrap_or_default();
                let (used, event) = match stream.feed(rest) {
                    Ok(fed) => fed,
                    Err(error) => {
                        assert_eq!(stream.feed(bytes), Err(error.clone()), "an error stays");
                        return Self { seen, error: Some(error) };
                    }
                };
                assert!(due == 0 || (used == 0 && event.is_none()), "records are the caller's");
                if frame > 4 {
                    let taken = frame.checked_sub(stream.frame_remaining());
                    assert_eq!(taken, u64::try_from(used).ok(), "the frame is miscounted");
                }
                at += used;
                if let Some(event) = event {
                    seen.push(Seen::Event(event, at));
                    continue;
                }
                let due = usize::try_from(stream.remaining_records()).unwrap_or(usize::MAX);
                let take = due.min(end - at);
                if take == 0 {
                    assert_eq!(at, end, "without an event it takes all");
                    break;
                }
                match seen.last_mut() {
                    Some(Seen::Records(_, to)) => *to += take,
                    _ => seen.push(Seen::Records(at, at + take)),
                }
                stream.records_taken(u64::try_from(take).unwrap_or(u64::MAX));
                at += take;
            }
        }
        Self { seen, error: None }
    }

    /// Header, partitions with their records and ends, end; again and again.
    fn check_order(&self) {
        let mut is_open = false;
        let mut partition: Option<(i32, u64)> = None;
        for seen in &self.seen {
            match seen {
                Seen::Event(FetchEvent::Header(_), _) => {
                    assert!(!is_open, "a header within a response");
                    is_open = true;
                }
                Seen::Event(FetchEvent::Partition(header), _) => {
                    assert!(is_open && partition.is_none(), "a partition out of place");
                    partition = Some((header.index, header.records_bytes));
                }
                Seen::Records(from, to) => {
                    let len = u64::try_from(to - from).ok();
                    let due = partition.map(|(_, bytes)| bytes).filter(|bytes| len <= Some(*bytes));
                    assert!(due.is_some(), "records that no partition announced");
                    let rest = due.zip(len).and_then(|(due, len)| due.checked_sub(len));
                    partition = partition.map(|(index, _)| (index, rest.unwrap_or(u64::MAX)));
                }
                Seen::Event(FetchEvent::PartitionEnd(end), _) => {
                    assert_eq!(partition.take(), Some((end.index, 0)), "an end out of place");
                }
                Seen::Event(FetchEvent::End { .. }, _) => {
                    assert!(is_open && partition.is_none(), "the response ends too early");
                    is_open = false;
                }
            }
        }
    }

    /// Complete responses: what was seen of each, and its bytes without the size.
    fn responses(&self) -> impl Iterator<Item = (&[Seen], std::ops::Range<usize>)> {
        let is_end = |seen: &Seen| matches!(seen, Seen::Event(FetchEvent::End { .. }, _));
        let mut from = 0;
        self.seen.split_inclusive(is_end).filter_map(move |response| match response.last() {
            Some(Seen::Event(FetchEvent::End { .. }, at)) => {
                let frame = from + 4..*at;
                from = *at;
                Some((response, frame))
            }
            _ => None,
        })
    }
}
