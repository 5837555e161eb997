//! One mirrored partition: what is stored of it, what is wanted, what is being done.

use std::sync::Arc;
use std::time::Duration;

use super::decide::{Decision, decide};
use super::retry::{Attempts, RetryPolicy};
use super::state::{DesiredState, MirrorState};
use crate::time::Tick;
use crate::types::LeaderEpoch;

/// A state that could not be stored is stored again after so long.
pub const STORE_RETRY: Duration = Duration::from_millis(100);

/// What `__mirror_state` holds of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it is.
    pub state: MirrorState,
    /// Where a failed one was; UNKNOWN of one that has not failed.
    pub previous: MirrorState,
    /// Failures since the last success.
    pub attempts: Attempts,
    /// Why it failed, for the operator.
    pub reason: Option<Arc<str>>,
    /// Local leader epoch of who wrote this.
    pub leader_epoch: LeaderEpoch,
    /// Counts the writes.
    pub state_epoch: i32,
}

impl Default for Stored {
    /// Nothing is known.
    fn default() -> Self {
        Self {
            state: MirrorState::Unknown,
            previous: MirrorState::Unknown,
            attempts: Attempts::default(),
            reason: None,
            leader_epoch: LeaderEpoch::NONE,
            state_epoch: 0,
        }
    }
}

/// Why an action failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The thing, the cause and the remedy, in one line.
    pub reason: Arc<str>,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// Names one beginning of an action: what an abandoned one reports later counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run(pub u64);

/// What happens to a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operator's wish, once it is durable. The same one again is heard again.
    Wanted(DesiredState),
    /// The last [`Action::Store`] is durable.
    Stored,
    /// It is not: what is in the log may be either.
    NotStored,
    /// The action has reached its end. MIRRORING has none.
    Finished(Run),
    /// The action has failed, and does nothing any more.
    Failed(Run, Failure),
    /// While mirroring: a batch's epoch is above the local leader epoch. Nothing of it was
    /// appended, and fetching has ended.
    EpochExceeded(Run),
    /// While mirroring: batches came and were accepted.
    Fetched(Run),
    /// While mirroring or aligning: no connection, no leader, no authentication. It is tried again
    /// for ever, and this shows why; it is no failure of the partition and uses up no attempt,
    /// or a weekend without a WAN would need an operator for each partition.
    SourceUnreachable(Run, Arc<str>),
    /// The time of an [`Action::WakeAt`] has come.
    Woken,
    /// The operator wants a failed partition tried again, with all its attempts.
    Recover,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this durable, and answer with [`Event::Stored`] or [`Event::NotStored`]. One at a
    /// time.
    Store(Stored),
    /// Do what the state is about, and report with this run.
    Begin(MirrorState, Run),
    /// End what was begun, fetching included; nobody waits for its report.
    Abandon(Run),
    /// Send [`Event::Woken`] then. Replaces an earlier one.
    WakeAt(Tick),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Doing {
    /// Rests: PAUSED, STOPPED, UNKNOWN, or FAILED with nobody but the operator to go on.
    Nothing,
    /// This is on its way to the log.
    Storing(Stored),
    /// This could not be stored.
    StoresAgain(Stored, Tick),
    /// The state's action is under way.
    Acting(Run),
    /// FAILED until then.
    Waiting(Tick),
}

/// What a decision needs besides the partition.
#[derive(Debug)]
pub struct Cx<'a> {
    /// When failures are tried again.
    pub retry: RetryPolicy,
    /// The time.
    pub now: Tick,
    /// Any number, best from a seeded stream of its own.
    pub random: u64,
    /// What is to be done, in order.
    pub actions: &'a mut Vec<Action>,
}

/// One mirrored partition. See the module and [`super`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMirror {
    stored: Stored,
    desired: DesiredState,
    doing: Doing,
    /// The source cannot be reached, and why.
    unreachable: Option<(Tick, Arc<str>)>,
    next_run: u64,
}

impl PartitionMirror {
    /// A partition as the log has it. Nothing is done before the first event; send
    /// [`Event::Wanted`] with what the operator wants.
    #[must_use]
    pub fn new(stored: Stored, desired: DesiredState) -> Self {
        Self { stored, desired, doing: Doing::Nothing, unreachable: None, next_run: 0 }
    }

    /// The last state that is durable.
    #[must_use]
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> MirrorState {
        self.stored.state
    }

    /// What the operator wants.
    #[must_use]
    pub fn desired(&self) -> DesiredState {
        self.desired
    }

    /// Since when the source cannot be reached, and why.
    #[must_use]
    pub fn unreachable(&self) -> Option<(Tick, &Arc<str>)> {
        self.unreachable.as_ref().map(|(since, why)| (*since, why))
    }

    /// Whether clients may write: once STOPPED is durable, and no longer than until the next
    /// state is on its way.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.stored.state.is_writable() && self.doing == Doing::Nothing
    }

    /// Whether the durable state says that the log has been aligned with the source's.
    #[must_use]
    pub fn is_aligned(&self) -> bool {
        use MirrorState as Is;
        match self.stored.state {
            Is::Mirroring | Is::EpochFencing | Is::Pausing => true,
            Is::Paused => self.stored.previous != Is::LogTruncation,
            Is::Failed => {
                matches!(self.stored.previous, Is::Mirroring | Is::EpochFencing | Is::Pausing)
            }
            Is::LogTruncation | Is::Stopping | Is::Stopped | Is::Unknown => false,
        }
    }

    /// The next store carries this local leader epoch.
    pub fn set_leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.stored.leader_epoch = epoch;
    }

    /// Tells of an event; what is to be done is appended to the actions of `cx`.
    pub fn on(&mut self, event: Event, cx: &mut Cx<'_>) {
        match event {
            Event::Wanted(desired) => {
                self.desired = desired;
                self.strive(cx);
            }
            Event::Stored => {
                let Doing::Storing(stored) = &self.doing else { return };
                self.stored = stored.clone();
                self.doing = Doing::Nothing;
                self.unreachable = None;
                self.has_entered(cx);
            }
            Event::NotStored => {
                if let Doing::Storing(stored) = &self.doing {
                    let again = cx.now.after(STORE_RETRY);
                    self.doing = Doing::StoresAgain(stored.clone(), again);
                    cx.actions.push(Action::WakeAt(again));
                }
            }
            Event::Finished(run) if self.is_acting(run) => {
                let next = match self.stored.state {
                    MirrorState::LogTruncation | MirrorState::EpochFencing => {
                        MirrorState::Mirroring
                    }
                    MirrorState::Pausing => MirrorState::Paused,
                    MirrorState::Stopping => MirrorState::Stopped,
                    MirrorState::Mirroring
                    | MirrorState::Paused
                    | MirrorState::Stopped
                    | MirrorState::Failed
                    | MirrorState::Unknown => return,
                };
                // It has ended by itself.
                self.doing = Doing::Nothing;
                self.enter(next, cx);
            }
            Event::Failed(run, failure) if self.is_acting(run) => {
                self.doing = Doing::Nothing;
                self.fail(failure, cx);
            }
            Event::EpochExceeded(run) if self.is_mirroring(run) => {
                self.doing = Doing::Nothing;
                self.enter(MirrorState::EpochFencing, cx);
            }
            Event::Fetched(run) if self.is_mirroring(run) => {
                self.unreachable = None;
                // In memory alone: the next state that is stored takes it along.
                self.clear_failure();
            }
            Event::SourceUnreachable(run, why) if self.needs_source(run) => {
                let since = self.unreachable.take().map_or(cx.now, |(since, _)| since);
                self.unreachable = Some((since, why));
            }
            Event::Woken => self.woken(cx),
            Event::Recover => {
                if self.stored.state == MirrorState::Failed && !self.is_storing() {
                    self.stored.attempts = Attempts::default();
                    self.retry(cx);
                }
            }
            // Of a run that was abandoned.
            Event::Finished(_)
            | Event::Failed(..)
            | Event::EpochExceeded(_)
            | Event::Fetched(_)
            | Event::SourceUnreachable(..) => {}
        }
    }

    fn is_acting(&self, run: Run) -> bool {
        self.doing == Doing::Acting(run)
    }

    fn is_mirroring(&self, run: Run) -> bool {
        self.stored.state == MirrorState::Mirroring && self.is_acting(run)
    }

    /// Mirroring, or asking where its common end is.
    fn needs_source(&self, run: Run) -> bool {
        let state = self.stored.state;
        matches!(state, MirrorState::Mirroring | MirrorState::LogTruncation) && self.is_acting(run)
    }

    fn is_storing(&self) -> bool {
        matches!(self.doing, Doing::Storing(_) | Doing::StoresAgain(..))
    }

    /// Does what the wish asks for in this state.
    fn strive(&mut self, cx: &mut Cx<'_>) {
        // What is on its way to the log is decided about once it is there.
        if self.is_storing() {
            return;
        }
        match self.decided() {
            Decision::Enter(next) if next != self.stored.state => self.enter(next, cx),
            Decision::Enter(same) if self.doing == Doing::Nothing => self.begin(same, cx),
            Decision::Stay if self.stored.state == MirrorState::Failed => self.wait(cx),
            Decision::Enter(_) | Decision::Stay => {}
        }
    }

    fn decided(&self) -> Decision {
        let decision = decide(self.stored.state, self.desired);
        let is_resumed = self.stored.state == MirrorState::Paused
            && decision == Decision::Enter(MirrorState::Mirroring);
        // It was paused when its alignment had failed, which is still to be done.
        if is_resumed && !self.is_aligned() {
            return Decision::Enter(MirrorState::LogTruncation);
        }
        decision
    }

    /// A state is durable: its action begins, unless something else is wanted by now.
    fn has_entered(&mut self, cx: &mut Cx<'_>) {
        if self.stop_has_failed() {
            // Like everything else it waits, or it would be tried without a pause.
            self.wait(cx);
        } else {
            self.strive(cx);
        }
    }

    fn stop_has_failed(&self) -> bool {
        self.stored.state == MirrorState::Failed
            && self.stored.previous == MirrorState::Stopping
            && self.desired == DesiredState::Stopped
    }

    /// In FAILED: until it is time to try again, if ever.
    fn wait(&mut self, cx: &mut Cx<'_>) {
        if self.doing != Doing::Nothing {
            return;
        }
        let wait = cx.retry.wait(self.stored.attempts, cx.random);
        // Somebody waits to write: a stop is never given up.
        let wait = wait.or_else(|| self.stop_has_failed().then_some(cx.retry.max));
        if let Some(wait) = wait {
            let at = cx.now.after(wait);
            self.doing = Doing::Waiting(at);
            cx.actions.push(Action::WakeAt(at));
        }
    }

    fn woken(&mut self, cx: &mut Cx<'_>) {
        match &self.doing {
            Doing::StoresAgain(stored, at) if *at <= cx.now => {
                let stored = stored.clone();
                cx.actions.push(Action::Store(stored.clone()));
                self.doing = Doing::Storing(stored);
            }
            Doing::Waiting(at) if *at <= cx.now => self.retry(cx),
            Doing::StoresAgain(_, at) | Doing::Waiting(at) => cx.actions.push(Action::WakeAt(*at)),
            Doing::Nothing | Doing::Storing(_) | Doing::Acting(_) => {}
        }
    }

    /// Back to the step that failed.
    fn retry(&mut self, cx: &mut Cx<'_>) {
        let next = match self.stored.previous {
            // Nothing says how far it got: an alignment is safe to repeat.
            MirrorState::Unknown | MirrorState::Failed | MirrorState::Stopped => {
                MirrorState::LogTruncation
            }
            previous => previous,
        };
        self.enter(next, cx);
    }

    fn fail(&mut self, failure: Failure, cx: &mut Cx<'_>) {
        let attempts = self.stored.attempts;
        let attempts = if failure.retryable { attempts.another() } else { Attempts::NEVER_AGAIN };
        let next = Stored {
            state: MirrorState::Failed,
            previous: self.stored.state,
            attempts,
            reason: Some(failure.reason),
            ..self.stored.clone()
        };
        self.store(next, cx);
    }

    /// Stores `next`, which ends what is being done.
    fn enter(&mut self, next: MirrorState, cx: &mut Cx<'_>) {
        debug_assert!(self.stored.state.may_become(next), "{} to {next}", self.stored.state);
        if let Doing::Acting(run) = self.doing {
            cx.actions.push(Action::Abandon(run));
        }
        let begins_anew = match next {
            MirrorState::Paused | MirrorState::Stopped => true,
            MirrorState::LogTruncation => self.stored.state != MirrorState::Failed,
            _ => false,
        };
        let is_aligned = self.stored.state != MirrorState::Failed || self.is_aligned();
        if begins_anew {
            self.clear_failure();
        }
        if next == MirrorState::Paused && !is_aligned {
            self.stored.previous = MirrorState::LogTruncation;
        }
        let next = Stored { state: next, ..self.stored.clone() };
        self.store(next, cx);
    }

    fn store(&mut self, next: Stored, cx: &mut Cx<'_>) {
        let next = Stored { state_epoch: self.stored.state_epoch.saturating_add(1), ..next };
        cx.actions.push(Action::Store(next.clone()));
        self.doing = Doing::Storing(next);
    }

    fn begin(&mut self, state: MirrorState, cx: &mut Cx<'_>) {
        let run = Run(self.next_run);
        self.next_run += 1;
        self.doing = Doing::Acting(run);
        cx.actions.push(Action::Begin(state, run));
    }

    fn clear_failure(&mut self) {
        self.stored.previous = MirrorState::Unknown;
        self.stored.attempts = Attempts::default();
        self.stored.reason = None;
    }
}

#[cfg(test)]
mod tests;
