//! Carries packets from each device to the other, when [`Link`] says so.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use super::error::PathError;
use super::link::{Fate, Link, LinkConfig};

/// Packets are carried in turns so long apart while any are under way: at 1 Gbit/s one each
/// would be 80,000 wake-ups a second.
const TURN_NANOS: i64 = 250_000;
/// Packets read from one device before the other has its turn.
const READ_MAX: u32 = 4_096;
/// Before all ordinary threads where allowed: a late pump is a longer path.
const REAL_TIME: [&str; 3] = ["--fifo", "--pid", "1"];
const NICE: i32 = -15;

/// A packet that is not late by this is on time.
pub const LATE: Duration = Duration::from_millis(2);

/// What one direction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// IP packets that arrived.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that the receiving device did not take.
    pub refused: u64,
    /// Packets that came more than [`LATE`] after their time: the processors were busy.
    pub late: u64,
    /// Most bytes that waited at once.
    pub queue_bytes_max: u64,
}

/// What a path did, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathReport {
    /// From near to far.
    pub outward: Direction,
    /// From far to near.
    pub homeward: Direction,
    /// Processor time of the pump, what the receiving side of TCP did in it included.
    pub cpu: Duration,
    /// Longest time that a packet was late.
    pub late_max: Duration,
}

/// The thread that carries; it ends with this.
#[derive(Debug)]
pub(super) struct Pump {
    report: Arc<Mutex<PathReport>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    /// Between two devices, near first.
    pub(super) fn start(devices: [File; 2], link: LinkConfig, mtu: u16) -> Result<Self, PathError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(PathError::system("an eventfd"))?);
        let report = Arc::new(Mutex::new(PathReport::default()));
        let other_seed = link.seed ^ u64::MAX;
        let mut carrier = Carrier {
            devices,
            outward: Line::new(link, mtu),
            homeward: Line::new(LinkConfig { seed: other_seed, ..link }, mtu),
            begun: Instant::now(),
            stop: Arc::clone(&stop),
            report: Arc::clone(&report),
        };
        let thread = std::thread::Builder::new()
            .name("path-emulator".to_owned())
            .spawn(move || carrier.run())
            .map_err(PathError::system("start a thread"))?;
        Ok(Self { report, stop, thread: Some(thread) })
    }

    pub(super) fn report(&self) -> PathReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // An eventfd takes its first number.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// One direction: packets under way, and buffers for more.
struct Line {
    link: Link,
    under_way: VecDeque<(Duration, Vec<u8>)>,
    free: Vec<Vec<u8>>,
    mtu: usize,
    did: Direction,
    late_max: Duration,
}

impl Line {
    fn new(link: LinkConfig, mtu: u16) -> Self {
        Self {
            link: Link::new(link),
            under_way: VecDeque::new(),
            free: Vec::new(),
            mtu: usize::from(mtu),
            did: Direction::default(),
            late_max: Duration::ZERO,
        }
    }

    /// Takes what the device has. Whether the device is still there.
    fn take(&mut self, mut device: &File, begun: Instant) -> bool {
        for _ in 0..READ_MAX {
            let mut packet = self.free.pop().unwrap_or_default();
            packet.resize(self.mtu, 0);
            let length = match device.read(&mut packet) {
                Ok(length) => length,
                Err(error) => {
                    self.free.push(packet);
                    return error.kind() == io::ErrorKind::WouldBlock;
                }
            };
            let now = begun.elapsed();
            match self.link.offer(u64::try_from(length).unwrap_or(u64::MAX), now) {
                Fate::Arrives(at) => {
                    let packet = self.keep(packet, length);
                    self.under_way.push_back((at, packet));
                    let queued = self.link.queued(now);
                    self.did.queue_bytes_max = self.did.queue_bytes_max.max(queued);
                }
                Fate::Lost => {
                    self.did.lost += 1;
                    self.free.push(packet);
                }
                Fate::Dropped => {
                    self.did.dropped += 1;
                    self.free.push(packet);
                }
            }
        }
        true
    }

    /// The packet in memory of about its size: a queue of acknowledgements must not take that of
    /// as many full packets.
    fn keep(&mut self, mut packet: Vec<u8>, length: usize) -> Vec<u8> {
        if length * 2 > self.mtu {
            packet.truncate(length);
            return packet;
        }
        let small = packet.get(..length).unwrap_or_default().to_vec();
        self.free.push(packet);
        small
    }

    /// Delivers what is due.
    fn deliver(&mut self, mut device: &File, begun: Instant) {
        let now = begun.elapsed();
        while let Some((at, packet)) = self.under_way.pop_front_if(|(at, _)| *at <= now) {
            let late = now.saturating_sub(at);
            self.late_max = self.late_max.max(late);
            self.did.late += u64::from(late > LATE);
            match device.write(&packet) {
                Ok(_) => {
                    self.did.packets += 1;
                    self.did.bytes += u64::try_from(packet.len()).unwrap_or(0);
                }
                Err(_) => self.did.refused += 1,
            }
            if packet.capacity() >= self.mtu {
                self.free.push(packet);
            }
        }
    }
}

struct Carrier {
    devices: [File; 2],
    outward: Line,
    homeward: Line,
    begun: Instant,
    stop: Arc<OwnedFd>,
    report: Arc<Mutex<PathReport>>,
}

impl Carrier {
    fn run(&mut self) {
        // Where neither works the path is longer under load; the report tells.
        let thread = rustix::thread::gettid();
        let _ = rustix::process::setpriority_process(Some(thread), NICE);
        let thread = thread.as_raw_nonzero().to_string();
        let _ = Command::new("chrt").args(REAL_TIME).arg(thread).output();
        loop {
            let [near, far] = &self.devices;
            let mut up = self.outward.take(near, self.begun);
            up &= self.homeward.take(far, self.begun);
            self.outward.deliver(far, self.begun);
            self.homeward.deliver(near, self.begun);
            self.publish();
            if !up || self.wait() {
                return;
            }
        }
    }

    fn publish(&self) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let report = PathReport {
            outward: self.outward.did,
            homeward: self.homeward.did,
            cpu: Duration::try_from(time).unwrap_or_default(),
            late_max: self.outward.late_max.max(self.homeward.late_max),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// Until the next turn: soon while packets are under way, else when one comes. Whether it
    /// was the last one.
    fn wait(&self) -> bool {
        let [near, far] = &self.devices;
        let come = |device| PollFd::new(device, PollFlags::IN);
        let stop = PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN);
        let idle = self.outward.under_way.is_empty() && self.homeward.under_way.is_empty();
        let (mut fds, turn) = if idle {
            (vec![stop, come(near), come(far)], None)
        } else {
            (vec![stop], Some(turn()))
        };
        // An interrupted wait is a turn too.
        let _ = poll(&mut fds, turn.as_ref());
        fds.first().is_some_and(|stop| !stop.revents().is_empty())
    }
}

fn turn() -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: TURN_NANOS }
}
