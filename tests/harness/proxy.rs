//! A TCP proxy that misbehaves on command: delays, stalls, cuts, refuses, and is far away.
//!
//! It stands between a client and a broker and touches no byte. Commands apply to
//! what goes to the client (responses); requests pass as they come. A client that
//! follows metadata comes back through the proxy only if the broker advertises the
//! proxy's address.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const CHUNK_BYTES: usize = 16 << 10;
/// On a long path the proxy holds little itself: what the client does not take waits at the
/// sender, as it would there.
const HELD_BYTES: usize = 16 << 10;

/// What happens once an allowance of response bytes is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// All connections are closed, in the middle of whatever they carry.
    Cut,
    /// No byte goes to any client any more, until [`Proxy::resume`].
    Stall,
}

#[derive(Debug, Default)]
struct Rules {
    stalled: bool,
    refusing: bool,
    closing: bool,
    delay: Duration,
    /// Round trip, and bytes that a connection may have in flight.
    path: Option<(Duration, usize)>,
    /// Response bytes that may still pass, and what comes then.
    allowance: Option<(u64, Then)>,
    forwarded: u64,
    /// Both ends of each connection that was not cut.
    connections: Vec<(TcpStream, TcpStream)>,
    accepted: u64,
    /// Most round trips that one connection of a long path has waited for.
    turns_max: u64,
}

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Rules>,
    changed: Condvar,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules());
        self.changed.notify_all();
    }
}

impl Rules {
    fn cut(&mut self) {
        for (client, broker) in self.connections.drain(..) {
            // Gone already is as good.
            let _ = client.shutdown(Shutdown::Both);
            let _ = broker.shutdown(Shutdown::Both);
        }
    }
}

/// A running proxy. Dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a free loopback port and forwards to `target`.
    ///
    /// # Errors
    ///
    /// The system's, if there is no port or thread.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || accept(&listener, target, &accepting))?;
        Ok(Self { address, shared })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every piece of a response waits so long before it goes on.
    pub fn delay(&self, delay: Duration) {
        self.shared.change(|rules| rules.delay = delay);
    }

    /// A long path: an answer takes `rtt` to begin, and each connection carries `window`
    /// bytes a round trip. For connections made from now on.
    pub fn path(&self, rtt: Duration, window: usize) {
        self.shared.change(|rules| rules.path = Some((rtt, window)));
    }

    /// Nothing goes to clients from now on; connections stay.
    pub fn stall(&self) {
        self.shared.change(|rules| rules.stalled = true);
    }

    /// Ends a stall.
    pub fn resume(&self) {
        self.shared.change(|rules| rules.stalled = false);
    }

    /// Closes all connections now.
    pub fn cut(&self) {
        self.shared.change(Rules::cut);
    }

    /// Lets `bytes` more response bytes pass, of all connections together, then acts.
    pub fn after(&self, bytes: u64, then: Then) {
        self.shared.change(|rules| rules.allowance = Some((bytes, then)));
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.shared.change(|rules| rules.refusing = refuse);
    }

    /// Response bytes that have passed.
    pub fn forwarded(&self) -> u64 {
        self.shared.rules().forwarded
    }

    /// Connections accepted so far, refused ones included.
    pub fn accepted(&self) -> u64 {
        self.shared.rules().accepted
    }

    /// Most round trips that one connection of a long path has waited for, however long they took.
    pub fn turns_max(&self) -> u64 {
        self.shared.rules().turns_max
    }

    /// Waits until at least `bytes` response bytes have passed. Whether they did
    /// within `limit`.
    pub fn wait_forwarded(&self, bytes: u64, limit: Duration) -> bool {
        let rules = self.shared.rules();
        let waited =
            self.shared.changed.wait_timeout_while(rules, limit, |rules| rules.forwarded < bytes);
        let (rules, _) = waited.unwrap_or_else(PoisonError::into_inner);
        rules.forwarded >= bytes
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|rules| {
            rules.closing = true;
            rules.cut();
        });
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let refusing = {
            let mut rules = shared.rules();
            rules.accepted += 1;
            if rules.closing {
                return;
            }
            rules.refusing
        };
        if let (Ok(client), false) = (client, refusing) {
            // A connection that cannot be forwarded is closed by the drop.
            let _ = forward(client, target, shared);
        }
    }
}

fn forward(client: TcpStream, target: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let broker = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let path = shared.rules().path;
    if path.is_some() {
        rustix::net::sockopt::set_socket_send_buffer_size(&client, HELD_BYTES)?;
    }
    let (from_client, to_broker) = (client.try_clone()?, broker.try_clone()?);
    let asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&asked);
    let (from_broker, to_client) = (broker.try_clone()?, client.try_clone()?);
    shared.change(|rules| rules.connections.push((client, broker)));
    thread::Builder::new().name("proxy-requests".to_owned()).spawn(move || {
        let _ = requests(from_client, &to_broker, &asks);
        let _ = to_broker.shutdown(Shutdown::Write);
    })?;
    let shared = Arc::clone(shared);
    thread::Builder::new().name("proxy-responses".to_owned()).spawn(move || {
        let _ = responses(from_broker, &to_client, &shared, path.map(|path| (path, &*asked)));
        let _ = to_client.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

fn requests(mut client: TcpStream, mut broker: &TcpStream, asked: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        asked.store(true, Ordering::Release);
        broker.write_all(buffer.get(..read).unwrap_or_default())?;
    }
}

fn responses(
    mut broker: TcpStream,
    mut client: &TcpStream,
    shared: &Shared,
    path: Option<((Duration, usize), &AtomicBool)>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut in_flight, mut turns) = (0, 0);
    loop {
        let read = broker.read(&mut buffer)?;
        let mut rest = buffer.get(..read).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        let delay = shared.rules().delay;
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        while !rest.is_empty() {
            let mut wanted = rest.len();
            if let Some(((rtt, window), asked)) = path {
                if asked.swap(false, Ordering::Acquire) || in_flight >= window {
                    thread::sleep(rtt);
                    in_flight = 0;
                    turns += 1;
                    shared.change(|rules| rules.turns_max = rules.turns_max.max(turns));
                }
                wanted = wanted.min(window - in_flight);
            }
            let Some(allowed) = allow(shared, wanted) else { return Ok(()) };
            in_flight += allowed;
            let (now, later) = rest.split_at(allowed);
            client.write_all(now)?;
            rest = later;
            shared.change(|rules| rules.used(allowed));
        }
    }
}

/// How many of `wanted` bytes may pass, at least one; waits out a stall. `None` when
/// the proxy closes.
fn allow(shared: &Shared, wanted: usize) -> Option<usize> {
    let rules = shared.rules();
    let waited = shared.changed.wait_while(rules, |rules| rules.stalled && !rules.closing);
    let mut rules = waited.unwrap_or_else(PoisonError::into_inner);
    match rules.allowance {
        // Used up before the first byte.
        Some((0, then)) => {
            rules.act(then);
            drop(rules);
            shared.changed.notify_all();
            (then == Then::Stall).then(|| allow(shared, wanted)).flatten()
        }
        _ if rules.closing => None,
        Some((left, _)) => Some(wanted.min(usize::try_from(left).unwrap_or(usize::MAX))),
        None => Some(wanted),
    }
}

impl Rules {
    fn used(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.forwarded = self.forwarded.saturating_add(bytes);
        if let Some((left, then)) = self.allowance {
            let left = left.saturating_sub(bytes);
            self.allowance = Some((left, then));
            if left == 0 {
                self.act(then);
            }
        }
    }

    fn act(&mut self, then: Then) {
        self.allowance = None;
        match then {
            Then::Cut => self.cut(),
            Then::Stall => self.stalled = true,
        }
    }
}
