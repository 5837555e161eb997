//! The cheapest consumer that librdkafka has: no group, all partitions into one queue, messages
//! taken by the batch. The Rust crate above this interface asks for each message alone.
//!
//! All `unsafe` of the package is here.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka_sys as sys;

/// Messages of one call.
const BATCH: usize = 4_096;
/// Room for what librdkafka says about a bad setting.
const MESSAGE_BYTES: usize = 512;

/// Consumes all partitions of a topic from offset 0 on.
#[derive(Debug)]
pub(super) struct Consumer {
    client: NonNull<sys::rd_kafka_t>,
    topic: NonNull<sys::rd_kafka_topic_t>,
    queue: NonNull<sys::rd_kafka_queue_t>,
    batch: Vec<*mut sys::rd_kafka_message_t>,
    partitions: i32,
}

impl Consumer {
    /// Connects in the background and begins to fetch.
    pub(super) fn start(
        settings: &[(&str, &str)],
        topic: &str,
        partitions: i32,
    ) -> Result<Self, String> {
        let client = client(settings)?;
        let name = CString::new(topic).map_err(|error| error.to_string())?;
        // SAFETY: the client lives, the name is a C string that is copied, and no settings of
        // the topic are handed over.
        let topic =
            unsafe { sys::rd_kafka_topic_new(client.as_ptr(), name.as_ptr(), ptr::null_mut()) };
        let topic = NonNull::new(topic).ok_or_else(last_error)?;
        // SAFETY: the client lives.
        let queue = unsafe { sys::rd_kafka_queue_new(client.as_ptr()) };
        let queue = NonNull::new(queue).ok_or_else(last_error)?;
        let batch = vec![ptr::null_mut(); BATCH];
        let mut consumer = Self { client, topic, queue, batch, partitions: 0 };
        for partition in 0..partitions {
            let (topic, queue) = (consumer.topic.as_ptr(), consumer.queue.as_ptr());
            // SAFETY: topic and queue live, and are of the same client.
            let failed = unsafe { sys::rd_kafka_consume_start_queue(topic, partition, 0, queue) };
            if failed != 0 {
                return Err(last_error());
            }
            consumer.partitions = partition.saturating_add(1);
        }
        Ok(consumer)
    }

    /// Waits for `wanted` messages, or for a full batch, shows partition and offset of each and
    /// frees them. There are fewer only when the time is up.
    pub(super) fn batch(
        &mut self,
        wanted: usize,
        timeout: Duration,
        mut each: impl FnMut(i32, i64),
    ) -> Result<(), String> {
        let milliseconds = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        let (into, room) = (self.batch.as_mut_ptr(), self.batch.len().min(wanted));
        // SAFETY: the queue lives, and `into` has room for `room` pointers.
        let got = unsafe {
            sys::rd_kafka_consume_batch_queue(self.queue.as_ptr(), milliseconds, into, room)
        };
        let got = usize::try_from(got).map_err(|_| last_error())?;
        let mut failed = None;
        for &message in self.batch.iter().take(got) {
            // SAFETY: the first `got` pointers are messages that are ours until they are destroyed.
            let seen = unsafe { &*message };
            if seen.err == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                each(seen.partition, seen.offset);
            } else {
                failed = Some(text_of(seen.err));
            }
            // SAFETY: as above; it is not looked at again.
            unsafe { sys::rd_kafka_message_destroy(message) };
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        for partition in 0..self.partitions {
            // SAFETY: the topic lives, and the partition was started.
            unsafe { sys::rd_kafka_consume_stop(self.topic.as_ptr(), partition) };
        }
        // SAFETY: nobody reads from the queue any more.
        unsafe { sys::rd_kafka_queue_destroy(self.queue.as_ptr()) };
        // SAFETY: its partitions are stopped, and all messages that name it are destroyed.
        unsafe { sys::rd_kafka_topic_destroy(self.topic.as_ptr()) };
        // SAFETY: queue and topic are gone; the client goes last.
        unsafe { sys::rd_kafka_destroy(self.client.as_ptr()) };
    }
}

fn client(settings: &[(&str, &str)]) -> Result<NonNull<sys::rd_kafka_t>, String> {
    // SAFETY: it has no conditions.
    let config = unsafe { sys::rd_kafka_conf_new() };
    let mut message = [c_char::default(); MESSAGE_BYTES];
    for &(key, value) in settings {
        let c_string = |text| CString::new(text).map_err(|error| error.to_string());
        let (key, value) = (c_string(key)?, c_string(value)?);
        let (key, value) = (key.as_ptr(), value.as_ptr());
        // SAFETY: the configuration lives, both are C strings that are copied, and `message` has
        // the room that is said.
        let set = unsafe {
            sys::rd_kafka_conf_set(config, key, value, message.as_mut_ptr(), MESSAGE_BYTES)
        };
        if set != sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK {
            return Err(said(&message));
        }
    }
    let kind = sys::rd_kafka_type_t::RD_KAFKA_CONSUMER;
    // SAFETY: the configuration lives and is given away; `message` has the room that is said.
    let client = unsafe { sys::rd_kafka_new(kind, config, message.as_mut_ptr(), MESSAGE_BYTES) };
    NonNull::new(client).ok_or_else(|| said(&message))
}

fn said(message: &[c_char]) -> String {
    let bytes: Vec<u8> = message.iter().map(|it| it.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| "no reason".to_owned(), |text| text.to_string_lossy().into_owned())
}

fn last_error() -> String {
    // SAFETY: it has no conditions.
    text_of(unsafe { sys::rd_kafka_last_error() })
}

fn text_of(error: sys::rd_kafka_resp_err_t) -> String {
    // SAFETY: it has no conditions.
    let text = unsafe { sys::rd_kafka_err2str(error) };
    // SAFETY: librdkafka's texts are static C strings.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
