use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn failure(retryable: bool) -> Failure {
    Failure { reason: Arc::from("source: broken; mend it"), retryable }
}

/// A partition in its way of being in `state`, with what it did last still under way.
fn partition(state: MirrorState, desired: DesiredState) -> PartitionMirror {
    let failed = state == MirrorState::Failed;
    let previous = if failed { MirrorState::EpochFencing } else { MirrorState::Unknown };
    let attempts = Attempts::new(i16::from(failed));
    let reason = failed.then(|| Arc::from("earlier"));
    let stored = Stored { state, previous, attempts, reason, ..Stored::default() };
    PartitionMirror::new(stored, desired)
}

fn tell(mirror: &mut PartitionMirror, event: Event, now: Tick) -> Vec<Action> {
    let mut actions = Vec::new();
    let retry = RetryPolicy::default();
    mirror.on(event, &mut Cx { retry, now, random: 0, actions: &mut actions });
    actions
}

fn events() -> Vec<(&'static str, Event)> {
    let run = Run(0);
    vec![
        ("wanted mirroring", Event::Wanted(DesiredState::Mirroring)),
        ("wanted paused", Event::Wanted(DesiredState::Paused)),
        ("wanted stopped", Event::Wanted(DesiredState::Stopped)),
        ("stored", Event::Stored),
        ("not stored", Event::NotStored),
        ("finished", Event::Finished(run)),
        ("finished, of another run", Event::Finished(Run(7))),
        ("failed", Event::Failed(run, failure(true))),
        ("failed for good", Event::Failed(run, failure(false))),
        ("epoch exceeded", Event::EpochExceeded(run)),
        ("fetched", Event::Fetched(run)),
        ("source unreachable", Event::SourceUnreachable(run, Arc::from("refused"))),
        ("woken", Event::Woken),
        ("recover", Event::Recover),
    ]
}

fn spell(actions: &[Action]) -> String {
    let mut text = String::new();
    for action in actions {
        match action {
            Action::Store(stored) => {
                let _ = write!(text, " store {}", stored.state);
                if stored.previous != MirrorState::Unknown {
                    let attempts = stored.attempts.stored();
                    let _ = write!(text, " (was {}, attempt {attempts})", stored.previous);
                }
            }
            Action::Begin(state, Run(run)) => {
                let _ = write!(text, " begin {state} as {run}");
            }
            Action::Abandon(Run(run)) => {
                let _ = write!(text, " abandon {run}");
            }
            Action::WakeAt(Tick(nanos)) => {
                let _ = write!(text, " wake at {} ms", nanos / 1_000_000);
            }
        }
        text.push(';');
    }
    if text.is_empty() { " -".to_owned() } else { text }
}

/// Each state with each event, first as it is when its action is under way (or it rests, or
/// waits), then while the next state is on its way to the log.
#[test]
fn every_event_in_every_state() {
    let mut table = String::new();
    for state in MirrorState::ALL {
        // The wish that keeps it there.
        let desired = match state {
            MirrorState::Stopping | MirrorState::Stopped => DesiredState::Stopped,
            MirrorState::Pausing | MirrorState::Paused | MirrorState::Unknown => {
                DesiredState::Paused
            }
            _ => DesiredState::Mirroring,
        };
        let mut settled = partition(state, desired);
        let entered = tell(&mut settled, Event::Wanted(desired), Tick::ZERO);
        let _ = writeln!(table, "{state}, {desired:?} wanted:{}", spell(&entered));
        for (name, event) in events() {
            let mut mirror = settled.clone();
            let actions = tell(&mut mirror, event, Tick(5_000_000_000));
            let _ = writeln!(table, "  {name}:{}", spell(&actions));
        }
        let mut moving = settled.clone();
        let other = match desired {
            DesiredState::Stopped => DesiredState::Mirroring,
            _ => DesiredState::Stopped,
        };
        let leaving = tell(&mut moving, Event::Wanted(other), Tick::ZERO);
        if !leaving.iter().any(|action| matches!(action, Action::Store(_))) {
            continue;
        }
        let _ = writeln!(table, " while storing:{}", spell(&leaving));
        for (name, event) in events() {
            let mut mirror = moving.clone();
            let actions = tell(&mut mirror, event, Tick(5_000_000_000));
            let _ = writeln!(table, "  {name}:{}", spell(&actions));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_source_that_is_away_uses_up_no_attempt() {
    let mut mirror = partition(MirrorState::Mirroring, DesiredState::Mirroring);
    tell(&mut mirror, Event::Wanted(DesiredState::Mirroring), Tick::ZERO);
    for second in 1..1_000 {
        let why = Event::SourceUnreachable(Run(0), Arc::from("refused"));
        assert_eq!(tell(&mut mirror, why, Tick(second * 1_000_000_000)), []);
    }
    assert_eq!(mirror.state(), MirrorState::Mirroring);
    assert_eq!(mirror.stored().attempts, Attempts::default());
    let since = mirror.unreachable().map(|(since, why)| (since, why.to_string()));
    assert_eq!(since, Some((Tick(1_000_000_000), "refused".to_owned())));
    tell(&mut mirror, Event::Fetched(Run(0)), Tick(1));
    assert_eq!(mirror.unreachable(), None);
}

#[test]
fn attempts_are_counted_until_a_fetch_works() {
    let mut mirror = partition(MirrorState::Unknown, DesiredState::Paused);
    tell(&mut mirror, Event::Wanted(DesiredState::Mirroring), Tick::ZERO);
    let mut now = Tick::ZERO;
    let mut waits = Vec::new();
    for run in 0..10 {
        tell(&mut mirror, Event::Stored, now);
        assert_eq!(mirror.state(), MirrorState::LogTruncation);
        tell(&mut mirror, Event::Failed(Run(run), failure(true)), now);
        let actions = tell(&mut mirror, Event::Stored, now);
        if let [Action::WakeAt(at)] = *actions {
            waits.push(at.since(now).as_millis());
            now = at;
            tell(&mut mirror, Event::Woken, now);
        }
    }
    // 80 % of each wait, and after the tenth attempt none.
    let want = [1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 240_000];
    assert_eq!(waits, want);
    assert_eq!((mirror.state(), mirror.stored().attempts.stored()), (MirrorState::Failed, 10));

    let again = tell(&mut mirror, Event::Recover, now);
    let [Action::Store(stored)] = &again[..] else { panic!("{again:?}") };
    assert_eq!((stored.state, stored.attempts), (MirrorState::LogTruncation, Attempts::default()));
}

#[test]
fn a_stop_that_fails_pauses_between_its_attempts_and_never_gives_up() {
    let mut mirror = partition(MirrorState::Mirroring, DesiredState::Mirroring);
    tell(&mut mirror, Event::Wanted(DesiredState::Stopped), Tick::ZERO);
    let mut now = Tick::ZERO;
    for run in 0..40 {
        tell(&mut mirror, Event::Stored, now);
        assert_eq!(mirror.state(), MirrorState::Stopping);
        assert!(!mirror.is_writable());
        tell(&mut mirror, Event::Failed(Run(run), failure(run != 20)), now);
        let actions = tell(&mut mirror, Event::Stored, now);
        let [Action::WakeAt(at)] = *actions else { panic!("{actions:?}") };
        assert!(at.since(now) >= Duration::from_millis(1_600));
        now = at;
        tell(&mut mirror, Event::Woken, now);
    }
    // Who asks again does not wait for the timer.
    tell(&mut mirror, Event::Stored, now);
    tell(&mut mirror, Event::Failed(Run(40), failure(true)), now);
    tell(&mut mirror, Event::Stored, now);
    let actions = tell(&mut mirror, Event::Wanted(DesiredState::Stopped), now);
    assert!(
        matches!(&actions[..], [Action::Store(stored)] if stored.state == MirrorState::Stopping)
    );
}

#[test]
fn writable_is_what_the_log_says_and_nothing_earlier() {
    let mut mirror = partition(MirrorState::Stopping, DesiredState::Stopped);
    tell(&mut mirror, Event::Wanted(DesiredState::Stopped), Tick::ZERO);
    tell(&mut mirror, Event::Finished(Run(0)), Tick::ZERO);
    assert!(!mirror.is_writable(), "STOPPED is not durable yet");
    tell(&mut mirror, Event::Stored, Tick::ZERO);
    assert!(mirror.is_writable());
    tell(&mut mirror, Event::Wanted(DesiredState::Mirroring), Tick::ZERO);
    assert!(!mirror.is_writable(), "the other state may be durable already");
}

/// A host around one partition: its log, its actions, its crashes.
#[derive(Debug)]
struct Host {
    mirror: PartitionMirror,
    durable: Stored,
    storing: Option<Stored>,
    acting: Option<(MirrorState, Run)>,
    wake_at: Option<Tick>,
    wish: DesiredState,
    now: Tick,
    /// State epochs that were begun with, so that none is acted upon before it is durable.
    began: Vec<MirrorState>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wish(DesiredState),
    StoreEnds(bool),
    ActionEnds(u8),
    Time(u16),
    Crash(bool),
    Recover,
}

impl Host {
    fn new(wish: DesiredState) -> Self {
        let mirror = PartitionMirror::new(Stored::default(), wish);
        let mut host = Self {
            mirror,
            durable: Stored::default(),
            storing: None,
            acting: None,
            wake_at: None,
            wish,
            now: Tick::ZERO,
            began: Vec::new(),
        };
        host.tell(Event::Wanted(wish));
        host
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        let retry = RetryPolicy::default();
        let (now, random) = (self.now, self.now.0);
        self.mirror.on(event, &mut Cx { retry, now, random, actions: &mut actions });
        for action in actions {
            match action {
                Action::Store(stored) => {
                    assert!(self.storing.is_none(), "one store at a time");
                    assert!(self.acting.is_none(), "what was begun is ended before the next state");
                    assert!(self.durable.state.may_become(stored.state));
                    assert_eq!(stored.state_epoch, self.durable.state_epoch + 1);
                    self.storing = Some(stored);
                }
                Action::Begin(state, run) => {
                    assert_eq!(state, self.durable.state, "stored first, begun then");
                    assert!(self.storing.is_none() && self.acting.is_none());
                    self.acting = Some((state, run));
                    self.began.push(state);
                }
                Action::Abandon(run) => {
                    assert_eq!(self.acting.take().map(|(_, run)| run), Some(run));
                }
                Action::WakeAt(at) => self.wake_at = Some(at),
            }
        }
        if self.mirror.is_writable() {
            assert_eq!(self.durable.state, MirrorState::Stopped);
            assert!(self.storing.is_none(), "nothing else may be durable");
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wish(wish) => {
                self.wish = wish;
                self.tell(Event::Wanted(wish));
            }
            Step::StoreEnds(well) => {
                let Some(stored) = self.storing.take() else { return };
                if well {
                    self.durable = stored;
                    self.tell(Event::Stored);
                } else {
                    self.tell(Event::NotStored);
                }
            }
            Step::ActionEnds(how) => self.action_ends(how),
            Step::Time(ms) => {
                self.now = self.now.after(Duration::from_millis(ms.into()));
                if self.wake_at.is_some_and(|at| at <= self.now) {
                    self.wake_at = None;
                    self.tell(Event::Woken);
                }
            }
            Step::Crash(was_written) => {
                // What was on its way may be in the log or not.
                if let Some(stored) = self.storing.take().filter(|_| was_written) {
                    self.durable = stored;
                }
                (self.acting, self.wake_at) = (None, None);
                self.mirror = PartitionMirror::new(self.durable.clone(), self.wish);
                self.tell(Event::Wanted(self.wish));
            }
            Step::Recover => self.tell(Event::Recover),
        }
    }

    fn action_ends(&mut self, how: u8) {
        let Some((state, run)) = self.acting else { return };
        let event = match how % 5 {
            0 => Event::Failed(run, failure(true)),
            1 => Event::Failed(run, failure(false)),
            2 if state == MirrorState::Mirroring => Event::EpochExceeded(run),
            3 if state == MirrorState::Mirroring => Event::Fetched(run),
            _ if state == MirrorState::Mirroring => return,
            _ => Event::Finished(run),
        };
        if !matches!(event, Event::Fetched(_)) {
            self.acting = None;
        }
        self.tell(event);
    }

    fn has_its_wish(&self) -> bool {
        let state = self.durable.state;
        match self.wish {
            DesiredState::Mirroring => state == MirrorState::Mirroring && self.acting.is_some(),
            // A pause begins where a copy is aligned; before that nothing runs, or runs until then.
            DesiredState::Paused => {
                matches!(state, MirrorState::Paused | MirrorState::Unknown | MirrorState::Stopped)
            }
            DesiredState::Stopped => state == MirrorState::Stopped,
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wish = prop_oneof![
        Just(DesiredState::Mirroring),
        Just(DesiredState::Paused),
        Just(DesiredState::Stopped)
    ];
    let step = prop_oneof![
        2 => wish.prop_map(Step::Wish),
        6 => prop::bool::weighted(0.8).prop_map(Step::StoreEnds),
        6 => any::<u8>().prop_map(Step::ActionEnds),
        4 => any::<u16>().prop_map(Step::Time),
        1 => any::<bool>().prop_map(Step::Crash),
        1 => Just(Step::Recover),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Whatever happens, no rule is broken (see [`Host::tell`]); once nothing fails any more, the
    /// operator's wish comes true, without another word unless the failure was for good.
    #[test]
    fn wishes_come_true_once_faults_end(steps in steps()) {
        let mut host = Host::new(DesiredState::Mirroring);
        for step in steps {
            host.step(step);
        }
        let given_up = |host: &Host| {
            host.durable.state == MirrorState::Failed
                && host.wish == DesiredState::Mirroring
                && RetryPolicy::default().wait(host.durable.attempts, 0).is_none()
        };
        for _ in 0..40 {
            if given_up(&host) {
                host.step(Step::Recover);
            }
            host.step(Step::StoreEnds(true));
            if host.acting.is_some_and(|(state, _)| state != MirrorState::Mirroring) {
                host.step(Step::ActionEnds(4));
            }
            for _ in 0..6 {
                host.step(Step::Time(u16::MAX));
            }
        }
        prop_assert!(host.has_its_wish(), "{:?} with {:?}", host.wish, host.durable);
    }
}

/// Its log may hold what the source does not have.
#[test]
fn a_partition_paused_before_it_was_aligned_is_aligned_when_it_is_resumed() {
    for previous in [MirrorState::LogTruncation, MirrorState::EpochFencing] {
        let stored = Stored { state: MirrorState::Failed, previous, ..Stored::default() };
        let mut mirror = PartitionMirror::new(stored, DesiredState::Mirroring);
        tell(&mut mirror, Event::Wanted(DesiredState::Paused), Tick::ZERO);
        tell(&mut mirror, Event::Stored, Tick::ZERO);
        assert_eq!(mirror.state(), MirrorState::Paused);
        // Across a restart as well.
        let mut mirror = PartitionMirror::new(mirror.stored().clone(), DesiredState::Paused);
        tell(&mut mirror, Event::Wanted(DesiredState::Mirroring), Tick::ZERO);
        tell(&mut mirror, Event::Stored, Tick::ZERO);
        let want = if previous == MirrorState::LogTruncation {
            MirrorState::LogTruncation
        } else {
            MirrorState::Mirroring
        };
        assert_eq!(mirror.state(), want);
    }
}
